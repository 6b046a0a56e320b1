package scsi

import (
	"encoding/binary"
	"errors"
)

// Mode pages.
const (
	ModeCaching = 0x08
	ModeControl = 0x0A
	ModeAll     = 0x3F
)

// Caching is what MODE SENSE of the caching page says.
type Caching struct {
	WCE         bool // volatile write cache enabled
	ReadOnly    bool // the medium is write protected
	DPOFUA      bool // DPO and FUA are honoured
	HasPage     bool // the caching page was there
	ReadDisable bool // RCD
}

var errMode = errors.New("scsi: MODE SENSE data is cut short")

// ParseCaching reads the answer of MODE SENSE(6) or, with ten, (10) for the
// caching page (SBC-3 6.4.5). Without the page HasPage is false, no error.
func ParseCaching(b []byte, ten bool) (c Caching, err error) {
	hdr, dev, desc := 4, 2, 3
	if ten {
		hdr, dev, desc = 8, 3, 7
	}
	if len(b) < hdr {
		return c, errMode
	}
	c.ReadOnly, c.DPOFUA = b[dev]&0x80 != 0, b[dev]&0x10 != 0
	skip := hdr + int(b[desc])
	if ten {
		skip += int(b[6]) << 8
	}
	if len(b) < skip {
		return c, errMode
	}
	for p := b[skip:]; len(p) >= 4; {
		if p[0]&0x7f == ModeCaching {
			c.HasPage, c.WCE, c.ReadDisable = true, p[2]&4 != 0, p[2]&1 != 0
			return c, nil
		}
		n := 2 + int(p[1])
		if p[0]&0x40 != 0 { // subpage format
			n = 4 + int(binary.BigEndian.Uint16(p[2:]))
		}
		p = p[min(n, len(p)):]
	}
	return c, nil
}

// Append appends an answer to MODE SENSE(6) or (10) with the given whole mode
// pages and no block descriptors.
func (c *Caching) Append(b []byte, ten bool, pages ...[]byte) []byte {
	n := 0
	for _, p := range pages {
		n += len(p)
	}
	var dev byte
	if c.ReadOnly {
		dev |= 0x80
	}
	if c.DPOFUA {
		dev |= 0x10
	}
	if ten {
		b = append(b, byte((n+6)>>8), byte(n+6), 0, dev, 0, 0, 0, 0)
	} else {
		b = append(b, byte(n+3), 0, dev, 0)
	}
	for _, p := range pages {
		b = append(b, p...)
	}
	return b
}

// Page is the caching mode page, 20 bytes.
func (c *Caching) Page() []byte {
	p := make([]byte, 20)
	p[0], p[1] = ModeCaching, 18
	if c.WCE {
		p[2] |= 4
	}
	if c.ReadDisable {
		p[2] |= 1
	}
	return p
}
