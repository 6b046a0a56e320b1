package pdu

// Entry is the submission queue entry in the header of a command capsule, or
// the completion queue entry in that of a response.
func Entry(b []byte) []byte {
	if Type(b[0]) == TypeCapsuleCmd {
		return b[CommonLen:CommandLen:CommandLen]
	}
	return b[CommonLen:HeaderLen:HeaderLen]
}

// CommandSpace is where the entry of a command capsule is written before PutCapsuleCmd.
func CommandSpace(b []byte) []byte { return b[CommonLen:CommandLen:CommandLen] }

// ResponseSpace is where the entry of a response capsule is written before PutCapsuleResp.
func ResponseSpace(b []byte) []byte { return b[CommonLen:HeaderLen:HeaderLen] }

// PutCapsuleCmd makes b a command capsule (3.6.2.6) with n bytes of in-capsule
// data, which its entry, already in CommandSpace(b), describes. It returns the
// bytes in front of the data. b holds CommandLen + DigestLen and, with data,
// DataStart bytes.
func (l Layout) PutCapsuleCmd(b []byte, n int) int { return l.seal(b, TypeCapsuleCmd, 0, n) }

// PutCapsuleResp makes b a response capsule (3.6.2.7), whose entry is already
// in ResponseSpace(b). It returns the PDU's length.
func (l Layout) PutCapsuleResp(b []byte) int { return l.seal(b, TypeCapsuleResp, 0, 0) }

// Data is the header of H2CData or C2HData (3.6.2.8, 3.6.2.9).
type Data struct {
	CID    uint16
	Tag    uint16 // TTAG of the R2T: H2CData only
	Offset uint32 // from the start of the command's data, bytes
	Len    uint32 // bytes, not 0
	// Last: no more data for the R2T, or of the command.
	Last bool
	// Success, with Last, is the command's completion: no response capsule
	// comes. C2HData only.
	Success bool
}

// PutH2C writes the header; it returns the bytes in front of the data.
func (p *Data) PutH2C(b []byte, l Layout) int { return p.put(b, l, TypeH2CData) }

// PutC2H writes the header; it returns the bytes in front of the data.
func (p *Data) PutC2H(b []byte, l Layout) int { return p.put(b, l, TypeC2HData) }

func (p *Data) put(b []byte, l Layout, t Type) int {
	var flags byte
	if p.Last {
		flags |= flagLast
	}
	if p.Success {
		flags |= flagSuccess
	}
	putTransfer(b, p.CID, p.Tag, p.Offset, p.Len)
	return l.seal(b, t, flags, int(p.Len))
}

// putTransfer writes bytes 8-23 of data PDUs and R2T.
func putTransfer(b []byte, cid, tag uint16, off, n uint32) {
	put16(b[8:], cid)
	put16(b[10:], tag)
	put32(b[12:], off)
	put32(b[16:], n)
	put32(b[20:], 0)
}

// DecodeH2C reads the header of an H2CData that Parse understood as h.
func (p *Data) DecodeH2C(b []byte, h Header) error { return p.decode(b, h, TypeH2CData) }

// DecodeC2H reads the header of a C2HData that Parse understood as h. Success
// without Last is refused (B-03).
func (p *Data) DecodeC2H(b []byte, h Header) error {
	if err := p.decode(b, h, TypeC2HData); err != nil {
		return err
	}
	if p.Success && !p.Last {
		return field(1, "C2HData: SUCCESS without LAST_PDU")
	}
	return nil
}

func (p *Data) decode(b []byte, h Header, t Type) error {
	if err := expect(b, t); err != nil {
		return err
	}
	*p = Data{get16(b[8:]), get16(b[10:]), get32(b[12:]), get32(b[16:]), b[1]&flagLast != 0, b[1]&flagSuccess != 0}
	if uint64(p.Len) != uint64(h.Data) {
		return field(16, "%v: data length %d, but the PDU carries %d", t, p.Len, h.Data)
	}
	return inRange(t, p.Offset, p.Len)
}

// inRange refuses a transfer beyond what 32 bits can address.
func inRange(t Type, off, n uint32) error {
	if uint64(off)+uint64(n) > 1<<32-1 {
		return &Fault{OutOfRange, 12, t.String() + ": data beyond 2^32 bytes"}
	}
	return nil
}

// R2T asks for data of a command (3.6.2.10).
type R2T struct {
	CID    uint16
	Tag    uint16 // TTAG: the controller's, to be given back
	Offset uint32 // bytes
	Len    uint32 // bytes, not 0
}

// Put writes the PDU; it returns its length.
func (p *R2T) Put(b []byte, l Layout) int {
	putTransfer(b, p.CID, p.Tag, p.Offset, p.Len)
	return l.seal(b, TypeR2T, 0, 0)
}

// Decode reads the PDU. An R2T for nothing is refused: it would be answered
// with nothing for ever (B-02).
func (p *R2T) Decode(b []byte) error {
	if err := expect(b, TypeR2T); err != nil {
		return err
	}
	*p = R2T{get16(b[8:]), get16(b[10:]), get32(b[12:]), get32(b[16:])}
	if p.Len == 0 {
		return field(16, "R2T for 0 bytes")
	}
	return inRange(TypeR2T, p.Offset, p.Len)
}
