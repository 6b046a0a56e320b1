package proto

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGreetingIsTheOneOfTheSpecification(t *testing.T) {
	got := AppendGreeting(nil, FlagFixedNewstyle|FlagNoZeroes)
	if want := append([]byte("NBDMAGICIHAVEOPT"), 0, 3); !bytes.Equal(got, want) {
		t.Fatalf("got %x", got)
	}
}

func TestUnsupportedOptionIsAnsweredInTwentyBytes(t *testing.T) {
	got := AppendRep(nil, OptExtendedHeaders, RepErrUnsup, 0)
	if want := unhex(t, "0003e889045565a90000000b8000000100000000"); !bytes.Equal(got, want) {
		t.Fatalf("got %x", got)
	}
}

func TestListEntryCarriesItsNameLength(t *testing.T) {
	got := AppendServer(nil, "200")
	if want := unhex(t, "0003e889045565a9000000030000000200000007"+"00000003323030"); !bytes.Equal(got, want) {
		t.Fatalf("got %x", got)
	}
}

func TestCommandFlagsAreSixteenBitsOfTheirOwn(t *testing.T) {
	var q Request
	if !q.Parse(unhex(t, "25609513000100010000000000000007000000000000100000000200")) {
		t.Fatal("magic refused")
	}
	if want := (Request{Flags: CmdFlagFUA, Cmd: CmdWrite, Cookie: 7, Off: 4096, Len: 512}); q != want {
		t.Fatalf("got %+v", q)
	}
}

func TestReplyHeadersAreByteExact(t *testing.T) {
	b := make([]byte, MaxReplyLen)
	for _, c := range []struct {
		n    int
		want string
	}{
		{PutSimple(b, 7, EIO), "67446698000000050000000000000007"},
		{PutChunk(b, ReplyNone, 7, 0), "668e33ef00010000000000000000000700000000"},
		{PutOffsetData(b, 7, 4096, 512), "668e33ef00010001000000000000000700000208" + "0000000000001000"},
		{PutErrorChunk(b, 7, EINVAL), "668e33ef00018001000000000000000700000006" + "000000160000"},
	} {
		if len(c.want) != 2*c.n {
			t.Errorf("length %d, want %d", c.n, len(c.want)/2)
		}
	}
	if n := PutErrorChunk(b, 7, EINVAL); !bytes.Equal(b[:n], unhex(t, "668e33ef00018001000000000000000700000006"+"000000160000")) {
		t.Errorf("error chunk % x", b[:n])
	}
	if n := PutOffsetData(b, 7, 4096, 512); !bytes.Equal(b[:n], unhex(t, "668e33ef00010001000000000000000700000208"+"0000000000001000")) {
		t.Errorf("data chunk % x", b[:n])
	}
	if n := PutSimple(b, 7, EIO); !bytes.Equal(b[:n], unhex(t, "67446698000000050000000000000007")) {
		t.Errorf("simple reply % x", b[:n])
	}
}

// goPayload makes a GO payload whose lengths may lie.
func goPayload(nameLen uint32, name string, count uint16, infos int) []byte {
	b := binary.BigEndian.AppendUint32(nil, nameLen)
	b = append(b, name...)
	b = binary.BigEndian.AppendUint16(b, count)
	return append(b, make([]byte, 2*infos)...)
}

func TestGoWithLyingLengthsIsMalformed(t *testing.T) {
	long := string(bytes.Repeat([]byte("n"), MaxName+1))
	for name, c := range map[string]struct {
		in   []byte
		want error
	}{
		"name length all ones":   {goPayload(0xffffffff, "abcd", 0, 0), ErrMalformed},
		"name over the infos":    {goPayload(1999, string(bytes.Repeat([]byte("n"), 1994)), 0, 0), ErrMalformed},
		"name of one in six":     {[]byte{0, 0, 0, 1, 0, 0}, ErrMalformed},
		"count larger than data": {goPayload(4, "abcd", 65535, 0), ErrMalformed},
		"count smaller":          {goPayload(4, "abcd", 0, 1), ErrMalformed},
		"five bytes":             {make([]byte, 5), ErrMalformed},
		"name too long":          {goPayload(MaxName+1, long, 0, 0), ErrNameTooBig},
		"name of 4096":           {goPayload(MaxName, long[1:], 0, 0), nil},
		"name with NUL":          {goPayload(3, "a\x00b", 0, 0), ErrNameText},
		"name not UTF-8":         {goPayload(2, "\xff\xfe", 0, 0), ErrNameText},
		"empty name":             {goPayload(0, "", 2, 2), nil},
	} {
		if _, _, err := ParseGo(c.in); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}

func FuzzParseGo(f *testing.F) {
	f.Add(AppendGo(nil, "export", InfoExport, InfoBlockSize))
	f.Add(goPayload(0xffffffff, "abcd", 65535, 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		name, infos, err := ParseGo(b)
		if err != nil {
			return
		}
		var kinds []Info
		for i := 0; i < len(infos); i += 2 {
			k := Info(binary.BigEndian.Uint16(infos[i:]))
			if !HasInfo(infos, k) {
				t.Fatalf("info %d is not found", k)
			}
			kinds = append(kinds, k)
		}
		if again := AppendGo(nil, string(name), kinds...); !bytes.Equal(again, b) {
			t.Fatalf("%x encodes again as %x", b, again)
		}
	})
}

func FuzzHeadersSurviveARoundTrip(f *testing.F) {
	f.Add(make([]byte, RequestLen))
	f.Add(append(unhex(f, "25609513"), make([]byte, 24)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Reply
		if n := r.Parse(b); n > len(b) {
			t.Fatalf("reply of %d bytes in %d", n, len(b))
		}
		if len(b) < RequestLen {
			return
		}
		var q Request
		if ok := q.Parse(b); ok && !bytes.Equal(q.Append(nil), b[:RequestLen]) {
			t.Fatalf("%x encodes again as %x", b, q.Append(nil))
		}
		if _, _, err := ParseOption(b); err == nil {
			opt, n, _ := ParseOption(b)
			if !bytes.Equal(AppendOption(nil, opt, n), b[:OptionLen]) {
				t.Fatal("option header differs")
			}
		}
	})
}

func TestCodecsDoNotAllocate(t *testing.T) {
	b := make([]byte, 0, 256)
	payload := AppendGo(nil, "export", InfoName)
	q := Request{Cmd: CmdRead, Len: 512}
	hdr := q.Append(nil)
	if n := testing.AllocsPerRun(100, func() {
		b = AppendInfoExport(b[:0], OptGo, 1<<30, HasFlags)
		b = AppendInfoBlockSize(b, OptGo, 512, 4096, MaxPayload)
		_, _, _ = ParseGo(payload)
		q.Parse(hdr)
		PutOffsetData(b[:MaxReplyLen], 1, 2, 3)
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
