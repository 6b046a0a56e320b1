package pdu

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

var (
	plain   = Layout{}
	digests = Layout{HeaderDigest: true, DataDigest: true}
)

// golden are whole headers as they look on the wire, padding to the data included.
var golden = []struct {
	name string
	make func(b []byte) int
	want string
}{
	{"ICReq", func(b []byte) int {
		(&ICReq{Align: 3, HeaderDigest: true, MaxR2T: 16}).Put(b)
		return InitLen
	}, "00008000 80000000 0000 03 01 0f000000" + strings.Repeat("00", 112)},
	{"ICResp", func(b []byte) int {
		(&ICResp{Align: 1, DataDigest: true, MaxH2CData: 0x20000}).Put(b)
		return InitLen
	}, "01008000 80000000 0000 01 02 00000200" + strings.Repeat("00", 112)},
	{"CapsuleCmd", func(b []byte) int {
		copy(CommandSpace(b), bytes.Repeat([]byte{0xAB}, 64))
		return plain.PutCapsuleCmd(b, 0)
	}, "04004800 48000000" + strings.Repeat("ab", 64)},
	{"CapsuleCmd with data", func(b []byte) int {
		copy(CommandSpace(b), bytes.Repeat([]byte{0xAB}, 64))
		return Layout{Align: 7}.PutCapsuleCmd(b, 0x1000)
	}, "04004860 60100000" + strings.Repeat("ab", 64) + strings.Repeat("00", 24)},
	{"CapsuleResp", func(b []byte) int {
		copy(ResponseSpace(b), bytes.Repeat([]byte{0xCD}, 16))
		return plain.PutCapsuleResp(b)
	}, "05001800 18000000" + strings.Repeat("cd", 16)},
	{"H2CData", func(b []byte) int {
		return (&Data{CID: 0x1234, Tag: 0x5678, Offset: 0x1000, Len: 0x200, Last: true}).PutH2C(b, plain)
	}, "06041818 18020000 3412 7856 00100000 00020000 00000000"},
	{"C2HData", func(b []byte) int {
		return (&Data{CID: 7, Offset: 0x2000, Len: 0x10, Last: true, Success: true}).PutC2H(b, plain)
	}, "070c1818 28000000 0700 0000 00200000 10000000 00000000"},
	{"R2T", func(b []byte) int {
		return (&R2T{CID: 7, Tag: 9, Offset: 0x2000, Len: 0x1000}).Put(b, plain)
	}, "09001800 18000000 0700 0900 00200000 00100000 00000000"},
	{"C2HTermReq", func(b []byte) int {
		return copy(b, (&TermReq{FromController: true, Status: OutOfRange, Info: 0x01020304, Offender: []byte{9, 8}}).Append(nil))
	}, "03001800 1a000000 0400 04030201" + strings.Repeat("00", 10) + "0908"},
}

func TestPDUsLookAsOnTheWire(t *testing.T) {
	for _, g := range golden {
		b := bytes.Repeat([]byte{0xFF}, 256)
		n := g.make(b)
		if got, want := hex.EncodeToString(b[:n]), strings.ReplaceAll(g.want, " ", ""); got != want {
			t.Errorf("%s:\n got %s\nwant %s", g.name, got, want)
		}
	}
}

// A C2HData with both digests, computed by an independent CRC32C.
func TestDigestsAreLittleEndianCRC32C(t *testing.T) {
	b := make([]byte, 64)
	at := (&Data{CID: 1, Len: 9, Last: true}).PutC2H(b, digests)
	data := b[at : at+9]
	copy(data, "123456789")
	end := at + 9 + digests.PutTrailer(b[at+9:], 9, CRC(0, data))
	if got := hex.EncodeToString(b[at+9 : end]); got != "839206e3" { // CRC32C of the check string is E3069283h
		t.Errorf("data digest on the wire is %s", got)
	}
	if got, want := get32(b[HeaderLen:]), slowCRC(b[:HeaderLen]); got != want {
		t.Errorf("header digest is %08x, want %08x", got, want)
	}
	if want := HeaderLen + DigestLen + 9 + DigestLen; end != want || int(get32(b[4:])) != want {
		t.Errorf("PDU of %d bytes says %d, want %d", end, get32(b[4:]), want)
	}
}

// slowCRC is CRC32C bit by bit.
func slowCRC(b []byte) uint32 {
	sum := ^uint32(0)
	for _, c := range b {
		sum ^= uint32(c)
		for range 8 {
			sum = sum>>1 ^ 0x82F63B78&-(sum&1)
		}
	}
	return ^sum
}

func TestEveryFlippedBitOfAPDUIsSeen(t *testing.T) {
	b := make([]byte, 64)
	at := (&Data{CID: 1, Len: 5, Last: true}).PutC2H(b, digests)
	copy(b[at:], "hello")
	b = b[:at+5+digests.PutTrailer(b[at+5:], 5, CRC(0, b[at:at+5]))]
	check := func() error {
		h, more, err := digests.Open(b)
		if err != nil || more > 0 || h.Size != len(b) || h.Type != TypeC2HData {
			return errors.Join(err, errors.New("another PDU: a terminate request has no digest, and ends the connection"))
		}
		return digests.CheckTrailer(b[h.DataOff+h.Data:], h.Data, CRC(0, b[h.DataOff:h.DataOff+h.Data]))
	}
	if err := check(); err != nil {
		t.Fatal(err)
	}
	for i := range len(b) * 8 {
		b[i/8] ^= 1 << (i % 8)
		if check() == nil {
			t.Errorf("bit %d flipped unseen", i)
		}
		b[i/8] ^= 1 << (i % 8)
	}
}

func TestADataDigestErrorIsNotAFault(t *testing.T) {
	err := digests.CheckTrailer([]byte{1, 2, 3, 4}, 1, 5)
	var f *Fault
	if !errors.Is(err, ErrDataDigest) || errors.As(err, &f) {
		t.Errorf("%v: only the command fails (3.3.1.1)", err)
	}
}

func TestDataBeginsWhereTheReceiverWantsIt(t *testing.T) {
	for align := range uint8(MaxAlign + 1) {
		for _, hd := range []bool{false, true} {
			l := Layout{HeaderDigest: hd, Align: align}
			b := bytes.Repeat([]byte{0xFF}, 256)
			at := l.PutCapsuleCmd(b, 4)
			unit := (int(align) + 1) * 4
			if at%unit != 0 || at < CommandLen+l.headerDigest() || at >= CommandLen+l.headerDigest()+unit || at > MaxHeader {
				t.Fatalf("%+v: data at %d", l, at)
			}
			for i := CommandLen + l.headerDigest(); i < at; i++ {
				if b[i] != 0 {
					t.Fatalf("%+v: padding at %d is %d", l, i, b[i])
				}
			}
			h, more, err := l.Open(b)
			if err != nil || more != 0 || h.DataOff != at || h.Data != 4 || h.Size != at+4 {
				t.Fatalf("%+v: %+v, %d, %v", l, h, more, err)
			}
		}
	}
}

// patch is a PDU of layout l, changed at one byte.
func patch(l Layout, put func(b []byte, l Layout) int, at int, v byte) []byte {
	b := make([]byte, 256)
	n := put(b, l)
	b[at] = v
	return b[:n]
}

func someC2H(b []byte, l Layout) int  { return (&Data{CID: 1, Len: 8, Last: true}).PutC2H(b, l) }
func someR2T(b []byte, l Layout) int  { return (&R2T{CID: 1, Len: 8}).Put(b, l) }
func someResp(b []byte, l Layout) int { return l.PutCapsuleResp(b) }
func someCmd(b []byte, l Layout) int  { return l.PutCapsuleCmd(b, 8) }
func someReq(b []byte, _ Layout) int  { (&ICReq{}).Put(b); return InitLen }

func TestWhatNoPartyMaySendIsRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		l    Layout
		b    []byte
		info uint32
	}{
		{"unknown type", plain, patch(plain, someC2H, 0, 8), 0},
		{"type out of range", plain, patch(plain, someC2H, 0, 0xFF), 0},
		{"header length", plain, patch(plain, someC2H, 2, 25), 2},
		{"data offset inside the header", plain, patch(plain, someC2H, 3, 20), 3},
		{"data offset beside the alignment", Layout{Align: 1}, patch(Layout{Align: 1}, someC2H, 3, 28), 3},
		{"data offset beyond the PDU", plain, patch(plain, someC2H, 3, 64), 4},
		{"huge", plain, patch(plain, someC2H, 7, 0x7F), 4},
		{"no data", plain, patch(plain, someC2H, 4, HeaderLen), 4},
		{"shorter than its header", plain, patch(plain, someResp, 4, 3), 4},
		{"response with data", plain, patch(plain, someResp, 4, HeaderLen+1), 4},
		{"R2T with data", plain, patch(plain, someR2T, 4, HeaderLen+4), 4},
		{"capsule cut in its entry", plain, patch(plain, someCmd, 4, CommandLen-1), 4},
		{"header digest not agreed on", plain, patch(plain, someC2H, 1, flagHeaderDigest), 1},
		{"header digest missing", digests, patch(digests, someC2H, 1, flagDataDigest), 1},
		{"data digest not agreed on", plain, patch(plain, someC2H, 1, flagDataDigest), 1},
		{"data digest missing", digests, patch(digests, someC2H, 1, flagHeaderDigest), 1},
		{"ICReq of another size", plain, patch(plain, someReq, 4, 127), 4},
	} {
		_, err := c.l.Parse(c.b)
		var f *Fault
		if !errors.As(err, &f) || f.Status != InvalidField || f.Info != c.info {
			t.Errorf("%s: %v (%+v), want an invalid field at %d", c.name, err, f, c.info)
		}
	}
}

func TestAHeaderDigestMismatchIsAFaultWithTheDigest(t *testing.T) {
	b := make([]byte, 64)
	n := someR2T(b, digests)
	b[12] ^= 1
	_, _, err := digests.Open(b[:n])
	var f *Fault
	if !errors.As(err, &f) || f.Status != HeaderDigestError || f.Info != get32(b[HeaderLen:]) {
		t.Errorf("%v, %+v", err, f)
	}
}

func TestDataThatContradictsItsPDUIsRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		d      Data
		change func(b []byte)
		status uint16
	}{
		{"another length", Data{Len: 8}, func(b []byte) { b[16] = 9 }, InvalidField},
		{"SUCCESS without LAST_PDU", Data{Len: 8, Success: true}, func([]byte) {}, InvalidField},
		{"beyond 2^32", Data{Len: 8, Offset: 1<<32 - 8}, func([]byte) {}, OutOfRange},
		{"another type", Data{Len: 8}, func(b []byte) { b[0] = byte(TypeH2CData) }, SequenceError},
	} {
		b := make([]byte, 64)
		c.d.PutC2H(b, plain)
		c.change(b)
		h, err := plain.Parse(b)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var f *Fault
		if err := new(Data).DecodeC2H(b, h); !errors.As(err, &f) || f.Status != c.status {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestTerminateRequestsRoundTrip(t *testing.T) {
	for _, p := range []TermReq{
		{Status: HeaderDigestError, Info: 0xDEADBEEF},
		{FromController: true, Status: InvalidField, Info: 2, Offender: bytes.Repeat([]byte{7}, 24)},
		{FromController: true, Status: 0x77, Offender: bytes.Repeat([]byte{7}, MaxTermData+9)},
	} {
		var q TermReq
		if err := q.Decode(p.Append(nil)); err != nil {
			t.Fatal(err)
		}
		if q.FromController != p.FromController || q.Status != p.Status || q.Info != p.Info ||
			!bytes.Equal(q.Offender, p.Offender[:min(len(p.Offender), MaxTermData)]) {
			t.Errorf("%+v became %+v", p, q)
		}
		if q.Fault().Error() == "" {
			t.Error("no text")
		}
	}
	if new(TermReq).Decode((&TermReq{Offender: []byte{1}}).Append(nil)[:24]) == nil {
		t.Error("a request cut short is understood")
	}
}

func TestPutAndOpenAllocateNothing(t *testing.T) {
	b := make([]byte, 128)
	var d Data
	if n := testing.AllocsPerRun(100, func() {
		(&Data{CID: 3, Len: 4, Last: true}).PutC2H(b, digests)
		h, _, err := digests.Open(b)
		if err != nil || d.DecodeC2H(b, h) != nil {
			t.Fatal(err)
		}
		digests.PutCapsuleCmd(b, 4)
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
