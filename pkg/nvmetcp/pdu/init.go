package pdu

import "fmt"

// ICReq opens a connection (3.6.2.2).
type ICReq struct {
	Align                    uint8 // HPDA: of the data the host receives
	HeaderDigest, DataDigest bool  // wanted
	MaxR2T                   uint32
}

// Put writes the PDU into b, at least InitLen bytes. MaxR2T, the number of
// R2Ts that one command may have open, is at least 1.
func (p *ICReq) Put(b []byte) {
	putInit(b, TypeICReq, p.Align, p.HeaderDigest, p.DataDigest, max(p.MaxR2T, 1)-1)
}

func putInit(b []byte, t Type, align uint8, hd, dd bool, last uint32) {
	b = b[:InitLen:InitLen]
	clear(b)
	b[0], b[2], b[10] = byte(t), InitLen, align
	put32(b[4:], InitLen)
	if hd {
		b[11] |= flagHeaderDigest
	}
	if dd {
		b[11] |= flagDataDigest
	}
	put32(b[12:], last)
}

// checkInit refuses what either PDU must not say.
func checkInit(b []byte, t Type) error {
	if err := expect(b, t); err != nil {
		return err
	}
	if h, err := (Layout{}).Parse(b); err != nil || h.Size != InitLen {
		return err
	}
	switch {
	case get16(b[8:]) != 0:
		return unsupported(8, "%v: PDU format version %d, want 0", t, get16(b[8:]))
	case b[10] > MaxAlign:
		return unsupported(10, "%v: data alignment %d, want at most %d", t, b[10], MaxAlign)
	case b[11]&^(flagHeaderDigest|flagDataDigest) != 0:
		return unsupported(11, "%v: digest types %02Xh are unknown", t, b[11])
	}
	return nil
}

func unsupported(off uint32, format string, args ...any) error {
	return &Fault{UnsupportedParameter, off, fmt.Sprintf(format, args...)}
}

// Decode reads the PDU.
func (p *ICReq) Decode(b []byte) error {
	if err := checkInit(b, TypeICReq); err != nil {
		return err
	}
	n := get32(b[12:])
	*p = ICReq{b[10], b[11]&flagHeaderDigest != 0, b[11]&flagDataDigest != 0, max(n, n+1)}
	return nil
}

// ICResp accepts a connection (3.6.2.3).
type ICResp struct {
	Align                    uint8 // CPDA: of the data the controller receives
	HeaderDigest, DataDigest bool  // in use from the next PDU on
	MaxH2CData               uint32
}

// Put writes the PDU into b, at least InitLen bytes. MaxH2CData, the most data
// of one H2CData, is a multiple of 4 of at least MinH2CData bytes.
func (p *ICResp) Put(b []byte) {
	putInit(b, TypeICResp, p.Align, p.HeaderDigest, p.DataDigest, p.MaxH2CData)
}

// Decode reads the PDU.
func (p *ICResp) Decode(b []byte) error {
	if err := checkInit(b, TypeICResp); err != nil {
		return err
	}
	n := get32(b[12:])
	if n < MinH2CData || n%4 != 0 {
		return unsupported(12, "ICResp: MAXH2CDATA %d, want a multiple of 4 from %d", n, MinH2CData)
	}
	*p = ICResp{b[10], b[11]&flagHeaderDigest != 0, b[11]&flagDataDigest != 0, n}
	return nil
}

// Accept returns what a host that sent req agrees on: the layouts to send and
// to receive with. A controller that does not use exactly the digests asked
// for is refused (B-05): without them a cable that flips bits goes unseen.
func (p *ICResp) Accept(req *ICReq) (send, receive Layout, err error) {
	if p.HeaderDigest != req.HeaderDigest || p.DataDigest != req.DataDigest {
		return send, receive, unsupported(11,
			"digests asked for: header %t, data %t; the controller uses: header %t, data %t: set headerDigest and dataDigest alike at both ends",
			req.HeaderDigest, req.DataDigest, p.HeaderDigest, p.DataDigest)
	}
	send, receive = p.Layouts(req)
	return send, receive, nil
}

// Layouts are those of both directions once req was answered with p.
func (p *ICResp) Layouts(req *ICReq) (toController, toHost Layout) {
	return Layout{p.HeaderDigest, p.DataDigest, p.Align}, Layout{p.HeaderDigest, p.DataDigest, req.Align}
}
