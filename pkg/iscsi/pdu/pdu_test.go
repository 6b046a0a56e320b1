package pdu

import (
	"bytes"
	"encoding/hex"
	"testing"
)

type coder interface {
	Put([]byte)
	Decode([]byte) error
}

// kinds makes one empty PDU of each kind, by opcode.
var kinds = map[Opcode]func() coder{
	OpNOPOut:         func() coder { return new(NOPOut) },
	OpSCSICommand:    func() coder { return new(SCSICommand) },
	OpTMFRequest:     func() coder { return new(TMFRequest) },
	OpLoginRequest:   func() coder { return new(LoginRequest) },
	OpTextRequest:    func() coder { return new(TextRequest) },
	OpDataOut:        func() coder { return new(DataOut) },
	OpLogoutRequest:  func() coder { return new(LogoutRequest) },
	OpSNACK:          func() coder { return new(SNACK) },
	OpNOPIn:          func() coder { return new(NOPIn) },
	OpSCSIResponse:   func() coder { return new(SCSIResponse) },
	OpTMFResponse:    func() coder { return new(TMFResponse) },
	OpLoginResponse:  func() coder { return new(LoginResponse) },
	OpTextResponse:   func() coder { return new(TextResponse) },
	OpDataIn:         func() coder { return new(DataIn) },
	OpLogoutResponse: func() coder { return new(LogoutResponse) },
	OpR2T:            func() coder { return new(R2T) },
	OpAsync:          func() coder { return new(Async) },
	OpReject:         func() coder { return new(Reject) },
}

// Written by hand from the figures of RFC 7143 section 11, each field with a
// value of its own.
var golden = []struct {
	name string
	pdu  coder
	hex  string
}{
	{"ping from A-17 answered", &NOPOut{Immediate: true, LUN: 0x0001000000000000, ITT: NoTag, TTT: 0x02e40001, CmdSN: 5, ExpStatSN: 4},
		"40800000 00000000 0001000000000000 ffffffff 02e40001 00000005 00000004 00000000000000000000000000000000"},
	{"command", &SCSICommand{Final: true, Write: true, Attr: AttrSimple, LUN: 0x412c000000000000, ITT: 0x11223344, EDTL: 0x55667788,
		CmdSN: 0x99aabbcc, ExpStatSN: 0xddeeff00, CDB: [16]byte{0x2a, 1, 2, 3, 4, 5, 6, 7, 8, 9}, DataLen: 0x010203},
		"01a10000 00010203 412c000000000000 11223344 55667788 99aabbcc ddeeff00 2a010203040506070809000000000000"},
	{"task management", &TMFRequest{Immediate: true, Function: TMFAbortTask, LUN: 1 << 48, ITT: 1, RefTag: 2, CmdSN: 3, ExpStatSN: 4, RefCmdSN: 5, ExpDataSN: 6},
		"42810000 00000000 0001000000000000 00000001 00000002 00000003 00000004 00000005 00000006 0000000000000000"},
	{"login", &LoginRequest{Transit: true, CSG: StageOperational, NSG: StageFull, ISID: [6]byte{0x40, 1, 2, 3, 4, 5}, TSIH: 0x0607, ITT: 8, CID: 9, CmdSN: 10, ExpStatSN: 11, DataLen: 12},
		"43870000 0000000c 400102030405 0607 00000008 00090000 0000000a 0000000b 00000000000000000000000000000000"},
	{"text", &TextRequest{Final: true, ITT: 1, TTT: NoTag, CmdSN: 2, ExpStatSN: 3, DataLen: 16},
		"04800000 00000010 0000000000000000 00000001 ffffffff 00000002 00000003 00000000000000000000000000000000"},
	{"data-out", &DataOut{Final: true, LUN: 1 << 48, ITT: 1, TTT: 2, ExpStatSN: 3, DataSN: 4, Offset: 5, DataLen: 6},
		"05800000 00000006 0001000000000000 00000001 00000002 00000000 00000003 00000000 00000004 00000005 00000000"},
	{"logout", &LogoutRequest{Immediate: true, Reason: LogoutSession, ITT: 1, CID: 2, CmdSN: 3, ExpStatSN: 4},
		"46800000 00000000 0000000000000000 00000001 00020000 00000003 00000004 00000000000000000000000000000000"},
	{"SNACK", &SNACK{Type: 1, ITT: 1, TTT: NoTag, ExpStatSN: 2, BegRun: 3, RunLength: 4},
		"10810000 00000000 0000000000000000 00000001 ffffffff 00000000 00000002 0000000000000000 00000003 00000004"},
	{"nop-in", &NOPIn{ITT: NoTag, TTT: NoTag, Window: Window{1, 2, 3}},
		"20800000 00000000 0000000000000000 ffffffff ffffffff 00000001 00000002 00000003 000000000000000000000000"},
	{"response", &SCSIResponse{Status: 2, Residual: Residual{Underflow: true, Count: 512}, ITT: 1, Window: Window{2, 3, 4}, ExpDataSN: 5, DataLen: 20},
		"21820002 00000014 0000000000000000 00000001 00000000 00000002 00000003 00000004 00000005 00000000 00000200"},
	{"task management answered", &TMFResponse{Response: TMFRejected, ITT: 1, Window: Window{2, 3, 4}},
		"2280ff00 00000000 0000000000000000 00000001 00000000 00000002 00000003 00000004 000000000000000000000000"},
	{"login answered", &LoginResponse{Transit: true, CSG: StageSecurity, NSG: StageOperational, ISID: [6]byte{0x80, 0, 0, 0, 0, 1}, TSIH: 1, ITT: 2,
		Window: Window{3, 4, 5}, StatusClass: 2, StatusDetail: 1},
		"23810000 00000000 800000000001 0001 00000002 00000000 00000003 00000004 00000005 0201000000000000 00000000"},
	{"text answered", &TextResponse{Continue: true, ITT: 1, TTT: 0x11, Window: Window{2, 3, 4}, DataLen: 5},
		"24400000 00000005 0000000000000000 00000001 00000011 00000002 00000003 00000004 000000000000000000000000"},
	{"data-in", &DataIn{Final: true, HasStatus: true, Residual: Residual{Overflow: true, Count: 9}, ITT: 1, TTT: NoTag, Window: Window{2, 3, 4}, DataSN: 5, Offset: 6, DataLen: 7},
		"25850000 00000007 0000000000000000 00000001 ffffffff 00000002 00000003 00000004 00000005 00000006 00000009"},
	{"logout answered", &LogoutResponse{ITT: 1, Window: Window{2, 3, 4}, Time2Wait: 2, Time2Retain: 20},
		"26800000 00000000 0000000000000000 00000001 00000000 00000002 00000003 00000004 00000000 00020014 00000000"},
	{"r2t", &R2T{LUN: 1 << 48, ITT: 1, TTT: 2, Window: Window{3, 4, 5}, R2TSN: 6, Offset: 7, Length: 8},
		"31800000 00000000 0001000000000000 00000001 00000002 00000003 00000004 00000005 00000006 00000007 00000008"},
	{"async", &Async{LUN: 1 << 48, Window: Window{1, 2, 3}, Event: AsyncLogout, VendorCode: 4, Param1: 5, Param2: 6, Param3: 7},
		"32800000 00000000 0001000000000000 ffffffff 00000000 00000001 00000002 00000003 01040005 00060007 00000000"},
	{"reject", &Reject{Reason: RejectProtocol, Window: Window{1, 2, 3}, DataSN: 4, DataLen: 48},
		"3f800400 00000030 0000000000000000 ffffffff 00000000 00000001 00000002 00000003 00000004 0000000000000000"},
}

func TestEachPDUHasTheBytesOfTheStandard(t *testing.T) {
	seen := map[Opcode]bool{}
	for _, g := range golden {
		want, err := hex.DecodeString(string(bytes.ReplaceAll([]byte(g.hex), []byte(" "), nil)))
		if err != nil || len(want) != HeaderLen {
			t.Fatalf("%s: bad golden: %v, %d bytes", g.name, err, len(want))
		}
		got := bytes.Repeat([]byte{0xee}, HeaderLen+1)
		g.pdu.Put(got)
		if !bytes.Equal(got[:HeaderLen], want) || got[HeaderLen] != 0xee {
			t.Errorf("%s:\n got %x\nwant %x", g.name, got, want)
		}
		op, _ := Op(want)
		seen[op] = true
	}
	if len(seen) != len(kinds) {
		t.Errorf("golden bytes for %d of %d kinds", len(seen), len(kinds))
	}
}

func TestDigestsMatchThePublishedVectors(t *testing.T) {
	rising := make([]byte, 32)
	for i := range rising {
		rising[i] = byte(i)
	}
	read10, _ := hex.DecodeString("01c00000000000000000000000000000140000000000040000000014000000182800000000000000" + "0200000000000000")
	for _, v := range []struct {
		data []byte
		want uint32
	}{
		{make([]byte, 32), 0x8A9136AA}, {bytes.Repeat([]byte{0xff}, 32), 0x62A8AB43}, {rising, 0x46DD794E},
		{read10, 0xD9963A56}, {[]byte("AAAAA\x00\x00\x00"), 0x5537EF82},
	} {
		if got := CRC(0, v.data); got != v.want || slowCRC(v.data) != v.want {
			t.Errorf("%x: %08X, slow %08X, want %08X", v.data, got, slowCRC(v.data), v.want)
		}
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

func TestAFlippedBitIsSeenInHeaderAndData(t *testing.T) {
	l := Layout{HeaderDigest: true, DataDigest: true}
	for n := range 6 {
		p := make([]byte, HeaderLen+DigestLen+n+l.Trailer(n))
		(&DataIn{ITT: 1, DataLen: n}).Put(p)
		l.PutHeaderDigest(p)
		data := p[l.DataStart(0):][:n]
		copy(data, "ABCDE")
		used := l.PutTrailer(p[l.DataStart(0)+n:], n, CRC(0, data))
		if used != l.Trailer(n) || len(p) != l.Size(p) {
			t.Fatalf("n=%d: trailer %d, size %d, whole %d", n, used, l.Size(p), len(p))
		}
		check := func() error {
			if err := l.CheckHeader(p); err != nil {
				return err
			}
			return l.CheckTrailer(p[l.DataStart(0)+n:], n, CRC(0, data))
		}
		if err := check(); err != nil {
			t.Fatal(err)
		}
		for i := range len(p) * 8 {
			if i/8 == 4 { // would change where the digest is looked for
				continue
			}
			p[i/8] ^= 1 << (i % 8)
			if check() == nil {
				t.Errorf("n=%d: bit %d flipped unseen", n, i)
			}
			p[i/8] ^= 1 << (i % 8)
		}
	}
}

func TestPutAndDecodeAllocateNothing(t *testing.T) {
	b := make([]byte, HeaderLen)
	var d DataIn
	if n := testing.AllocsPerRun(100, func() {
		c := SCSICommand{Final: true, Read: true, ITT: 7}
		c.Put(b)
		b[0] = byte(OpDataIn)
		if err := d.Decode(b); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func FuzzDecode(f *testing.F) {
	for _, g := range golden {
		b := make([]byte, HeaderLen)
		g.pdu.Put(b)
		f.Add(b)
		f.Add(b[:HeaderLen-1])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for op, mk := range kinds {
			p := mk()
			err := p.Decode(b)
			if len(b) < HeaderLen {
				if err == nil {
					t.Fatal("decoded a short header")
				}
				continue
			}
			if got, _ := Op(b); (got == op) != (err == nil) {
				t.Fatalf("%v decoded as %v: %v", got, op, err)
			}
			if err != nil {
				continue
			}
			// What was understood survives a round trip.
			once, twice := make([]byte, HeaderLen), make([]byte, HeaderLen)
			p.Put(once)
			q := mk()
			if err := q.Decode(once); err != nil {
				t.Fatal(err)
			}
			q.Put(twice)
			if !bytes.Equal(once, twice) || DataLen(once) != DataLen(b) && hasData(op) {
				t.Fatalf("%v: %x became %x then %x", op, b, once, twice)
			}
		}
	})
}

func hasData(op Opcode) bool {
	switch op {
	case OpTMFRequest, OpTMFResponse, OpLogoutRequest, OpLogoutResponse, OpR2T, OpSNACK:
		return false
	}
	return true
}
