// Package scsi encodes and decodes SCSI commands, their data and sense, and
// says what each answer of a target means for its path (Classify).
//
// It is pure: bytes in, values out. Sources: SAM-5, SPC-4, SBC-3. Fields of
// all structures are big-endian.
package scsi

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// LUN is a logical unit number: the 8 bytes of SAM-5 4.7, first byte most
// significant. What a target reported is sent back unchanged; two LUNs with the
// same Number may differ in their addressing method.
type LUN uint64

// WellKnownReportLUNs is the REPORT LUNS well known logical unit.
const WellKnownReportLUNs LUN = 0xC101 << 48

// LUN addressing methods (SAM-5 4.7.6), the top two bits.
const (
	methodPeripheral = 0
	methodFlat       = 1
	methodExtended   = 3
)

// LUNFromNumber returns the form to use for a number nobody reported:
// peripheral up to 255, flat up to 16383, extended flat up to 2^24-1.
func LUNFromNumber(n uint32) (LUN, error) {
	switch {
	case n < 1<<8:
		return LUN(n) << 48, nil
	case n < 1<<14:
		return LUN(methodFlat<<14|n) << 48, nil
	case n < 1<<24:
		return 0xD2<<56 | LUN(n)<<32, nil
	}
	return 0, fmt.Errorf("scsi: LUN %d is out of range 0..16777215", n)
}

// ParseLUN reads what a user writes: a decimal number, or 0x and the 16 hex
// digits of the 8-byte form.
func ParseLUN(s string) (LUN, error) {
	if hex, ok := strings.CutPrefix(s, "0x"); ok && len(hex) == 16 {
		v, err := strconv.ParseUint(hex, 16, 64)
		if err == nil {
			return LUN(v), nil
		}
	}
	n, err := strconv.ParseUint(s, 10, 24)
	if err != nil {
		return 0, fmt.Errorf("scsi: LUN %q: want a number 0..16777215, or 0x and 16 hex digits", s)
	}
	return LUNFromNumber(uint32(n))
}

// LUNFromBytes reads the wire form; b must hold 8 bytes.
func LUNFromBytes(b []byte) LUN { return LUN(binary.BigEndian.Uint64(b)) }

// Put writes the wire form to b[:8].
func (l LUN) Put(b []byte) { binary.BigEndian.PutUint64(b, uint64(l)) }

// Number is the value a user means by "LUN 300", for the single-level
// addressing methods; ok is false for others (well known units, buses, deeper levels).
func (l LUN) Number() (n uint32, ok bool) {
	switch l >> 62 {
	case methodPeripheral, methodFlat:
		if l&(1<<48-1) != 0 || l>>62 == methodPeripheral && l>>56 != 0 {
			return 0, false
		}
		return uint32(l>>48) & 0x3fff, true
	case methodExtended:
		if l>>56 == 0xD2 && l&(1<<32-1) == 0 {
			return uint32(l>>32) & 0xffffff, true
		}
	}
	return 0, false
}

// String prints the number, or the 8-byte form in hex when it has none.
func (l LUN) String() string {
	if n, ok := l.Number(); ok {
		return strconv.Itoa(int(n))
	}
	return fmt.Sprintf("0x%016x", uint64(l))
}
