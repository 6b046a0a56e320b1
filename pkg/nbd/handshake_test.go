package nbd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/proto"
)

// stub is an export for handshakes: nobody opens lanes of it.
type stub struct{ name string }

func (s stub) Info() Info {
	return Info{Name: s.name, Description: "about " + s.name, Size: 1 << 20, Limits: blk.Limits{BlockSize: 512}}
}
func (stub) OpenLane(int) (Lane, error) { return nil, errors.New("stub") }

func granted(Export) error { return nil }

func twoExports() map[string]Export {
	return map[string]Export{"good": stub{"good"}, "other": stub{"other"}}
}

func option(opt proto.Option, payload string) string {
	return string(proto.AppendOption(nil, opt, uint32(len(payload)))) + payload
}

func goOption(opt proto.Option, name string, infos ...proto.Info) string {
	return option(opt, string(proto.AppendGo(nil, name, infos...)))
}

const fixedNoZeroes, fixedOnly, oldFlags = "\x00\x00\x00\x03", "\x00\x00\x00\x01", "\x00\x00\x00\x00"

// talk runs a whole handshake and returns the answers after the greeting.
func talk(exports map[string]Export, in string) (*handshake, []byte, error) {
	h := newHandshake(exports, granted)
	rest := []byte(in)
	for h.chosen == nil {
		n, err := h.step(rest)
		if err != nil || n == 0 {
			return h, h.out[proto.GreetingLen:], err
		}
		rest = rest[n:]
	}
	return h, h.out[proto.GreetingLen:], nil
}

// reps lists "option:reply" for each reply in out.
func reps(t testing.TB, out []byte) (list []string, data [][]byte) {
	t.Helper()
	for len(out) > 0 {
		if len(out) < proto.OptionRepLen {
			t.Fatalf("stray bytes %x", out)
		}
		opt, rep, n, err := proto.ParseRep(out)
		if err != nil || int(n) > len(out)-proto.OptionRepLen {
			t.Fatalf("bad reply %x: %v", out, err)
		}
		list = append(list, fmt.Sprintf("%d:%x", opt, uint32(rep)))
		data = append(data, out[proto.OptionRepLen:proto.OptionRepLen+n])
		out = out[proto.OptionRepLen+n:]
	}
	return list, data
}

func wantReps(t *testing.T, in string, want ...string) [][]byte {
	t.Helper()
	_, out, err := talk(twoExports(), in)
	if err != nil {
		t.Fatal(err)
	}
	got, data := reps(t, out)
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Fatalf("replies %v, want %v", got, want)
	}
	return data
}

func TestRefusedOptionsLeaveTheStreamInStep(t *testing.T) {
	wantReps(t, fixedNoZeroes+
		goOption(proto.OptGo, "secret", 0, 1, 3)+
		option(999, strings.Repeat("x", 1024))+
		option(998, strings.Repeat("x", 100000))+
		option(proto.OptList, "")+
		goOption(proto.OptGo, "good"),
		"7:80000006", "999:80000001", "998:80000001", "3:2", "3:2", "3:1", "7:3", "7:3", "7:1")
}

func TestAbsurdOptionLengthEndsTheConnection(t *testing.T) {
	in := fixedNoZeroes + string(proto.AppendOption(nil, 999, 0xffffffff))
	if _, _, err := talk(twoExports(), in); err == nil {
		t.Fatal("accepted")
	}
}

func TestNamesUpToTheLimitAreNamesAndNoLonger(t *testing.T) {
	name := strings.Repeat("n", proto.MaxName)
	wantReps(t, fixedNoZeroes+goOption(proto.OptGo, name), "7:80000006")
	wantReps(t, fixedNoZeroes+goOption(proto.OptGo, name+"n"), "7:80000009")
	wantReps(t, fixedNoZeroes+goOption(proto.OptGo, strings.Repeat("n", 10000)), "7:80000009")
	wantReps(t, fixedNoZeroes+goOption(proto.OptGo, "a\x00b"), "7:80000003")
	wantReps(t, fixedNoZeroes+option(proto.OptInfo, "\x00\x00\x00\x01\x00\x00"), "6:80000003")
}

func TestExportNameOfAnyBadLengthCloses(t *testing.T) {
	for _, n := range []int{3000, 4096, 4097, 100000} {
		in := fixedNoZeroes + option(proto.OptExportName, strings.Repeat("n", n))
		if _, out, err := talk(twoExports(), in); err == nil || len(out) != 0 {
			t.Errorf("%d bytes: error %v, %d bytes answered", n, err, len(out))
		}
	}
}

func TestFallbackToExportNameAnswersWithoutAHeader(t *testing.T) {
	for flags, tail := range map[string]int{fixedOnly: 124, fixedNoZeroes: 0, oldFlags: 124} {
		h, out, err := talk(twoExports(), flags+option(proto.OptExportName, "good"))
		if err != nil || h.chosen != (stub{"good"}) {
			t.Fatalf("flags %x: chosen %v, error %v", flags, h.chosen, err)
		}
		if len(out) != 10+tail || binary.BigEndian.Uint64(out) != 1<<20 || len(bytes.Trim(out[10:], "\x00")) != 0 {
			t.Errorf("flags %x: answer %x", flags, out)
		}
	}
}

func TestUnknownClientFlagsEndTheConnection(t *testing.T) {
	if _, _, err := talk(twoExports(), "\x00\x00\x00\x04"); err == nil {
		t.Fatal("accepted")
	}
}

func TestProbesForOtherOptionsAreUnsupportedInTwentyBytes(t *testing.T) {
	for _, opt := range []proto.Option{4, 5, 9, 10, 11, 999, 0x80000000} {
		data := wantReps(t, fixedNoZeroes+option(opt, "payload"), fmt.Sprintf("%d:80000001", opt))
		if len(data[0]) != 0 {
			t.Errorf("option %d: %d bytes follow", opt, len(data[0]))
		}
	}
}

func TestInfoAnswersForItsOwnExportEachTime(t *testing.T) {
	data := wantReps(t, fixedNoZeroes+
		goOption(proto.OptInfo, "good", proto.InfoName, proto.InfoDescription)+
		goOption(proto.OptInfo, "other", proto.InfoName)+
		option(proto.OptStructuredReply, "")+goOption(proto.OptInfo, "good"),
		"6:3", "6:3", "6:3", "6:3", "6:1", "6:3", "6:3", "6:3", "6:1", "8:1", "6:3", "6:3", "6:1")
	if string(data[1][2:]) != "good" || string(data[2][2:]) != "about good" || string(data[6][2:]) != "other" {
		t.Errorf("texts %q %q %q", data[1], data[2], data[6])
	}
	before, after := binary.BigEndian.Uint16(data[0][10:]), binary.BigEndian.Uint16(data[10][10:])
	if before&proto.SendDF != 0 || after&proto.SendDF == 0 {
		t.Errorf("SEND_DF without structured replies: flags %#x, with: %#x", before, after)
	}
}

func TestHundredExportsCanBeListedAndAskedFor(t *testing.T) {
	exports := map[string]Export{}
	in := fixedNoZeroes + option(proto.OptList, "")
	for i := range 100 {
		name := fmt.Sprintf("export%02d", i)
		exports[name] = stub{name}
		in += goOption(proto.OptInfo, name, proto.InfoName)
	}
	_, out, err := talk(exports, in)
	if err != nil {
		t.Fatal(err)
	}
	if list, _ := reps(t, out); len(list) != 101+4*100 {
		t.Fatalf("%d replies", len(list))
	}
}

func TestListAndStructuredReplyTakeNoData(t *testing.T) {
	wantReps(t, fixedNoZeroes+option(proto.OptList, "x")+option(proto.OptStructuredReply, "x"), "3:80000003", "8:80000003")
}

func TestAbortIsAcknowledged(t *testing.T) {
	_, out, err := talk(twoExports(), fixedNoZeroes+option(proto.OptAbort, ""))
	if list, _ := reps(t, out); !errors.Is(err, errAborted) || len(list) != 1 || list[0] != "2:1" {
		t.Fatalf("replies %v, error %v", list, err)
	}
}

func TestTheEmptyNameMeansTheOnlyExport(t *testing.T) {
	h, _, err := talk(map[string]Export{"good": stub{"good"}}, fixedNoZeroes+goOption(proto.OptGo, ""))
	if err != nil || h.chosen != (stub{"good"}) {
		t.Fatalf("chosen %v, error %v", h.chosen, err)
	}
	wantReps(t, fixedNoZeroes+goOption(proto.OptGo, ""), "7:80000006")
}

func TestAnExportThatCannotBeOpenedIsRefusedAndTheClientMayGoOn(t *testing.T) {
	h := newHandshake(twoExports(), func(Export) error { return errors.New("no") })
	in := []byte(fixedNoZeroes + goOption(proto.OptGo, "good") + option(proto.OptList, ""))
	for n, err := 1, error(nil); n > 0; in = in[n:] {
		if n, err = h.step(in); err != nil {
			t.Fatal(err)
		}
	}
	if list, _ := reps(t, h.out[proto.GreetingLen:]); h.chosen != nil || list[0] != "7:80000007" || len(list) != 4 {
		t.Fatalf("replies %v", list)
	}
}

// FuzzHandshake feeds the same bytes whole and one by one: answers, choice and
// end must be the same, and nothing may be asked for beyond the limit.
func FuzzHandshake(f *testing.F) {
	f.Add([]byte(fixedNoZeroes + goOption(proto.OptInfo, "good", 1, 2, 3) + option(proto.OptList, "") + goOption(proto.OptGo, "good")))
	f.Add([]byte(fixedOnly + option(999, "abc") + option(proto.OptStructuredReply, "") + option(proto.OptExportName, "good")))
	f.Add([]byte(fixedNoZeroes + option(998, strings.Repeat("x", 9000)) + option(proto.OptAbort, "")))
	f.Fuzz(func(t *testing.T, in []byte) {
		whole, out, err := talk(twoExports(), string(in))
		h := newHandshake(twoExports(), granted)
		var buf []byte
		var end error
		for i := 0; i < len(in) && end == nil && h.chosen == nil; i++ {
			buf = append(buf, in[i])
			for n := 1; n > 0 && end == nil && h.chosen == nil; {
				n, end = h.step(buf)
				buf = buf[n:]
			}
			if len(buf) >= maxHandshakeInput && end == nil {
				t.Fatalf("%d bytes are not enough", len(buf))
			}
		}
		if !bytes.Equal(h.out[proto.GreetingLen:], out) || h.chosen != whole.chosen || (end == nil) != (err == nil) {
			t.Fatalf("byte by byte %v %v, whole %v %v", h.chosen, end, whole.chosen, err)
		}
		if h.chosen == nil {
			reps(t, out)
		}
	})
}

func TestAClientWithoutHandshakeIsToldTheSame(t *testing.T) {
	i := Info{Size: 1<<20 + 512, Limits: blk.Limits{BlockSize: 4096, MaxUnmap: 1 << 20}}
	size, block, flags := i.Transmission()
	if size != 1<<20 || block != 4096 || flags != i.flags(false) || flags&proto.SendTrim == 0 || flags&proto.SendDF != 0 {
		t.Fatalf("got %d bytes, blocks of %d, flags %#x", size, block, flags)
	}
}
