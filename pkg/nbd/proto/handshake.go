package proto

import (
	"bytes"
	"encoding/binary"
	"errors"
	"unicode/utf8"
)

// Sizes of the handshake's fixed parts, bytes.
const (
	GreetingLen    = 18
	ClientFlagsLen = 4
	OptionLen      = 16
	OptionRepLen   = 20
	// ExportTail follows size and flags in the answer to EXPORT_NAME unless
	// both sides said NO_ZEROES.
	ExportTail = 124
)

// AppendGreeting appends what a fixed-newstyle server says first.
func AppendGreeting(b []byte, flags uint16) []byte {
	b = binary.BigEndian.AppendUint64(b, MagicServer)
	b = binary.BigEndian.AppendUint64(b, MagicOption)
	return binary.BigEndian.AppendUint16(b, flags)
}

// ParseOption reads the header of an option: the first OptionLen bytes of b.
func ParseOption(b []byte) (opt Option, length uint32, err error) {
	if binary.BigEndian.Uint64(b) != MagicOption {
		return 0, 0, ErrMagic
	}
	return Option(binary.BigEndian.Uint32(b[8:])), binary.BigEndian.Uint32(b[12:]), nil
}

// AppendOption appends the header of an option: the client's side.
func AppendOption(b []byte, opt Option, length uint32) []byte {
	b = binary.BigEndian.AppendUint64(b, MagicOption)
	b = binary.BigEndian.AppendUint32(b, uint32(opt))
	return binary.BigEndian.AppendUint32(b, length)
}

// AppendRep appends the header of an option reply with length bytes to follow.
func AppendRep(b []byte, opt Option, rep Rep, length uint32) []byte {
	b = binary.BigEndian.AppendUint64(b, MagicOptionRep)
	b = binary.BigEndian.AppendUint32(b, uint32(opt))
	b = binary.BigEndian.AppendUint32(b, uint32(rep))
	return binary.BigEndian.AppendUint32(b, length)
}

// ParseRep reads the header of an option reply: the first OptionRepLen bytes.
func ParseRep(b []byte) (opt Option, rep Rep, length uint32, err error) {
	if binary.BigEndian.Uint64(b) != MagicOptionRep {
		return 0, 0, 0, ErrMagic
	}
	return Option(binary.BigEndian.Uint32(b[8:])), Rep(binary.BigEndian.Uint32(b[12:])),
		binary.BigEndian.Uint32(b[16:]), nil
}

// AppendServer appends one REP_SERVER: an export's name in a list.
func AppendServer(b []byte, name string) []byte {
	b = AppendRep(b, OptList, RepServer, uint32(4+len(name)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(name)))
	return append(b, name...)
}

// AppendInfoExport appends REP_INFO with size and transmission flags.
func AppendInfoExport(b []byte, opt Option, size uint64, flags uint16) []byte {
	b = AppendRep(b, opt, RepInfo, 12)
	b = binary.BigEndian.AppendUint16(b, uint16(InfoExport))
	return AppendExport(b, size, flags)
}

// AppendExport appends size and flags alone, as EXPORT_NAME is answered.
func AppendExport(b []byte, size uint64, flags uint16) []byte {
	b = binary.BigEndian.AppendUint64(b, size)
	return binary.BigEndian.AppendUint16(b, flags)
}

// AppendInfoText appends REP_INFO with a name or a description.
func AppendInfoText(b []byte, opt Option, kind Info, text string) []byte {
	b = AppendRep(b, opt, RepInfo, uint32(2+len(text)))
	b = binary.BigEndian.AppendUint16(b, uint16(kind))
	return append(b, text...)
}

// AppendInfoBlockSize appends REP_INFO with the block sizes, bytes.
func AppendInfoBlockSize(b []byte, opt Option, minimum, preferred, maximum uint32) []byte {
	b = AppendRep(b, opt, RepInfo, 14)
	b = binary.BigEndian.AppendUint16(b, uint16(InfoBlockSize))
	b = binary.BigEndian.AppendUint32(b, minimum)
	b = binary.BigEndian.AppendUint32(b, preferred)
	return binary.BigEndian.AppendUint32(b, maximum)
}

// Why an option's payload is refused.
var (
	ErrNameTooBig = errors.New("export name is longer than 4096 bytes")
	ErrMalformed  = errors.New("lengths inside the option disagree")
	ErrNameText   = errors.New("export name is not UTF-8 text")
)

// ParseGo reads the payload of INFO or GO: a name and the information asked
// for. infos is a list of 16-bit Info values, to be read with HasInfo. Both
// point into b.
func ParseGo(b []byte) (name, infos []byte, err error) {
	if len(b) < 6 {
		return nil, nil, ErrMalformed
	}
	n := uint64(binary.BigEndian.Uint32(b))
	if n+6 > uint64(len(b)) {
		return nil, nil, ErrMalformed
	}
	name, b = b[4:4+n], b[4+n:]
	if err := CheckName(name); err != nil {
		return nil, nil, err
	}
	count := int(binary.BigEndian.Uint16(b))
	if len(b) != 2+2*count {
		return nil, nil, ErrMalformed
	}
	return name, b[2:], nil
}

// AppendGo appends the payload of INFO or GO: the client's side.
func AppendGo(b []byte, name string, infos ...Info) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(name)))
	b = append(b, name...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(infos)))
	for _, i := range infos {
		b = binary.BigEndian.AppendUint16(b, uint16(i))
	}
	return b
}

// HasInfo reports whether infos, as ParseGo returned it, asks for kind.
func HasInfo(infos []byte, kind Info) bool {
	for ; len(infos) >= 2; infos = infos[2:] {
		if Info(binary.BigEndian.Uint16(infos)) == kind {
			return true
		}
	}
	return false
}

// CheckName reports why name cannot be the name of an export, or nil.
func CheckName(name []byte) error {
	if len(name) > MaxName {
		return ErrNameTooBig
	}
	if !utf8.Valid(name) || bytes.IndexByte(name, 0) >= 0 {
		return ErrNameText
	}
	return nil
}
