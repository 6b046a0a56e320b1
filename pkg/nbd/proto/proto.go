// Package proto is the wire format of NBD (proto.md of NetworkBlockDevice/nbd):
// constants, and encoders and decoders that do not allocate.
//
// Encoders append to a slice of the caller; decoders look into one. All
// numbers are big-endian.
package proto

import "errors"

// Magic numbers.
const (
	MagicServer     = 0x4e42444d41474943 // "NBDMAGIC"
	MagicOption     = 0x49484156454f5054 // "IHAVEOPT"
	MagicOptionRep  = 0x0003e889045565a9
	MagicRequest    = 0x25609513
	MagicSimple     = 0x67446698
	MagicStructured = 0x668e33ef
)

// Handshake flags of server and client (proto.md, "Flag fields").
const (
	FlagFixedNewstyle = 1 << 0
	FlagNoZeroes      = 1 << 1
	// ClientFlags are those a client may set.
	ClientFlags = FlagFixedNewstyle | FlagNoZeroes
)

// Option is what a client asks for in the handshake.
type Option uint32

// The options (proto.md, "Option types").
const (
	OptExportName      Option = 1
	OptAbort           Option = 2
	OptList            Option = 3
	OptStartTLS        Option = 5
	OptInfo            Option = 6
	OptGo              Option = 7
	OptStructuredReply Option = 8
	OptListMeta        Option = 9
	OptSetMeta         Option = 10
	OptExtendedHeaders Option = 11
)

// Rep is the type of an option reply.
type Rep uint32

// The option replies (proto.md, "Option reply types").
const (
	RepAck           Rep = 1
	RepServer        Rep = 2
	RepInfo          Rep = 3
	RepErrUnsup      Rep = 1<<31 + 1
	RepErrPolicy     Rep = 1<<31 + 2
	RepErrInvalid    Rep = 1<<31 + 3
	RepErrUnknown    Rep = 1<<31 + 6
	RepErrShutdown   Rep = 1<<31 + 7
	RepErrBlockSize  Rep = 1<<31 + 8
	RepErrTooBig     Rep = 1<<31 + 9
	RepErrExtHeaders Rep = 1<<31 + 10
)

// Info is a kind of information about an export.
type Info uint16

// The information types of INFO and GO.
const (
	InfoExport      Info = 0
	InfoName        Info = 1
	InfoDescription Info = 2
	InfoBlockSize   Info = 3
)

// Transmission flags of an export (proto.md, "Transmission flags").
const (
	HasFlags        = 1 << 0
	ReadOnly        = 1 << 1
	SendFlush       = 1 << 2
	SendFUA         = 1 << 3
	Rotational      = 1 << 4
	SendTrim        = 1 << 5
	SendWriteZeroes = 1 << 6
	SendDF          = 1 << 7
	CanMultiConn    = 1 << 8
	SendResize      = 1 << 9
	SendCache       = 1 << 10
	SendFastZero    = 1 << 11
)

// Command is the type of a request.
type Command uint16

// The commands (proto.md, "Request types").
const (
	CmdRead        Command = 0
	CmdWrite       Command = 1
	CmdDisc        Command = 2
	CmdFlush       Command = 3
	CmdTrim        Command = 4
	CmdCache       Command = 5
	CmdWriteZeroes Command = 6
	CmdBlockStatus Command = 7
	CmdResize      Command = 8
)

// Command flags (proto.md, "Command flags").
const (
	CmdFlagFUA      = 1 << 0
	CmdFlagNoHole   = 1 << 1
	CmdFlagDF       = 1 << 2
	CmdFlagReqOne   = 1 << 3
	CmdFlagFastZero = 1 << 4
)

// Structured reply chunks (proto.md, "Structured reply types").
const (
	ReplyFlagDone    = 1 << 0
	ReplyNone        = 0
	ReplyOffsetData  = 1
	ReplyOffsetHole  = 2
	ReplyError       = 1<<15 + 1
	ReplyErrorOffset = 1<<15 + 2
)

// Errno is an error value on the wire: the same on all systems.
type Errno uint32

// The error values (proto.md, "Error values").
const (
	EPERM     Errno = 1
	EIO       Errno = 5
	ENOMEM    Errno = 12
	EINVAL    Errno = 22
	ENOSPC    Errno = 28
	EOVERFLOW Errno = 75
	ENOTSUP   Errno = 95
	ESHUTDOWN Errno = 108
)

// ErrMagic says that the peer does not speak NBD, or lost its place.
var ErrMagic = errors.New("nbd: wrong magic number: the peer does not speak NBD or lost its place in the stream")
