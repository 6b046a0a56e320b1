package pdu

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Pair is one key=value of a text data segment.
type Pair struct{ Key, Value string }

// Keys are the pairs of one text exchange, in order, each key once.
type Keys []Pair

// Get returns the value of a key and whether it is there.
func (k Keys) Get(key string) (string, bool) {
	for i := range k {
		if k[i].Key == key {
			return k[i].Value, true
		}
	}
	return "", false
}

// Append writes the pairs as a data segment behind dst.
func (k Keys) Append(dst []byte) []byte {
	for i := range k {
		dst = AppendPair(dst, k[i].Key, k[i].Value)
	}
	return dst
}

// AppendPair writes one pair, with its NUL, behind dst.
func AppendPair(dst []byte, key, value string) []byte {
	dst = append(dst, key...)
	dst = append(dst, '=')
	dst = append(dst, value...)
	return append(dst, 0)
}

// NextPair cuts the first pair off a text data segment (RFC 7143 6.1). It
// refuses a missing NUL, a missing or malformed key and an overlong value.
func NextPair(data []byte) (p Pair, rest []byte, err error) {
	end := bytes.IndexByte(data, 0)
	if end < 0 {
		return p, nil, fmt.Errorf("iscsi text: no NUL after %q", clip(data))
	}
	key, value, ok := bytes.Cut(data[:end], []byte{'='})
	switch {
	case !ok:
		return p, nil, fmt.Errorf("iscsi text: %q has no '='", clip(data[:end]))
	case !validKey(key):
		return p, nil, fmt.Errorf("iscsi text: %q is no key", clip(key))
	case len(value) > MaxValueLen:
		return p, nil, fmt.Errorf("iscsi text: value of %s is longer than %d bytes", key, MaxValueLen)
	}
	return Pair{string(key), string(value)}, data[end+1:], nil
}

// ParseKeys parses a whole text data segment, at most MaxKeys keys, each once.
func ParseKeys(data []byte) (Keys, error) {
	var keys Keys
	for len(data) > 0 {
		p, rest, err := NextPair(data)
		if err != nil {
			return nil, err
		}
		if _, dup := keys.Get(p.Key); dup {
			return nil, fmt.Errorf("iscsi text: key %s twice", p.Key)
		}
		if len(keys) == MaxKeys {
			return nil, fmt.Errorf("iscsi text: more than %d keys", MaxKeys)
		}
		keys = append(keys, p)
		data = rest
	}
	return keys, nil
}

// validKey checks a key-name (RFC 7143 6.1): letters, digits and ".-+@_/#".
func validKey(k []byte) bool {
	if len(k) == 0 || len(k) > MaxKeyLen {
		return false
	}
	for _, c := range k {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case strings.IndexByte(".-+@_/#", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// clip shortens what an error quotes: it came from the network.
func clip(b []byte) []byte { return b[:min(len(b), 40)] }

// Assembler joins the data segments of PDUs with the C bit, up to Limit bytes.
type Assembler struct {
	Limit int
	buf   []byte
}

// Add takes one data segment; more is its C bit. When whole, it returns the
// joined data, valid until the next Add, and starts over.
func (a *Assembler) Add(data []byte, more bool) (whole []byte, done bool, err error) {
	if len(a.buf)+len(data) > a.Limit {
		return nil, false, fmt.Errorf("iscsi text: more than %d bytes of keys", a.Limit)
	}
	if !more && len(a.buf) == 0 {
		return data, true, nil
	}
	a.buf = append(a.buf, data...)
	if more {
		return nil, false, nil
	}
	whole, a.buf = a.buf, nil
	return whole, true, nil
}

// ParseNumber parses a numerical-value, decimal or 0x hexadecimal, of at most
// max (RFC 7143 6.1).
func ParseNumber(s string, max uint32) (uint32, error) {
	digits, base := s, 10
	if len(s) > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X') {
		digits, base = s[2:], 16
	}
	if digits == "" || digits[0] == '+' || digits[0] == '-' || strings.IndexByte(digits, '_') >= 0 {
		return 0, fmt.Errorf("iscsi text: %q is no number", clip([]byte(s)))
	}
	v, err := strconv.ParseUint(digits, base, 32)
	if err != nil || v > uint64(max) {
		return 0, fmt.Errorf("iscsi text: %q is no number up to %d", clip([]byte(s)), max)
	}
	return uint32(v), nil
}

// ParseBool parses a boolean-value: Yes or No.
func ParseBool(s string) (bool, error) {
	switch s {
	case "Yes":
		return true, nil
	case "No":
		return false, nil
	}
	return false, fmt.Errorf("iscsi text: %q is neither Yes nor No", clip([]byte(s)))
}

// FormatBool is the reverse of ParseBool.
func FormatBool(v bool) string {
	if v {
		return "Yes"
	}
	return "No"
}

var errBinary = errors.New("iscsi text: not a binary value (0x hex digits or 0b base64)")

// ParseBinary decodes a hex-constant or base64-constant of 1 to MaxBinary
// bytes (RFC 7143 6.1). An odd number of hex digits stands for a last byte
// whose low half is zero.
func ParseBinary(s string) ([]byte, error) {
	if len(s) < 3 || s[0] != '0' {
		return nil, errBinary
	}
	digits := s[2:]
	if len(digits) > 2*MaxBinary {
		return nil, fmt.Errorf("iscsi text: binary value longer than %d bytes", MaxBinary)
	}
	var out []byte
	var err error
	switch s[1] {
	case 'x', 'X':
		if len(digits)%2 == 1 {
			digits += "0"
		}
		out, err = hex.DecodeString(digits)
	case 'b', 'B':
		if strings.ContainsAny(digits, "\r\n") { // the decoder would skip them
			return nil, errBinary
		}
		out, err = base64.RawStdEncoding.DecodeString(strings.TrimRight(digits, "="))
	default:
		return nil, errBinary
	}
	switch {
	case err != nil || len(out) == 0:
		return nil, errBinary
	case len(out) > MaxBinary:
		return nil, fmt.Errorf("iscsi text: binary value longer than %d bytes", MaxBinary)
	}
	return out, nil
}

// FormatBinary encodes b as a hex-constant.
func FormatBinary(b []byte) string { return "0x" + hex.EncodeToString(b) }
