package proto

import "encoding/binary"

// Sizes of the transmission phase's headers, bytes.
const (
	RequestLen    = 28
	SimpleLen     = 16
	ChunkLen      = 20
	OffsetDataLen = ChunkLen + 8
	ErrorChunkLen = ChunkLen + 6
	// MaxReplyLen is the longest header of a reply.
	MaxReplyLen = OffsetDataLen
)

// Request is the header of one request.
type Request struct {
	Flags  uint16
	Cmd    Command
	Cookie uint64
	Off    uint64
	Len    uint32
}

// Parse reads the first RequestLen bytes of b and reports whether they are a
// request: a wrong magic number means that the client lost its place.
func (r *Request) Parse(b []byte) bool {
	_ = b[RequestLen-1]
	r.Flags = binary.BigEndian.Uint16(b[4:])
	r.Cmd = Command(binary.BigEndian.Uint16(b[6:]))
	r.Cookie = binary.BigEndian.Uint64(b[8:])
	r.Off = binary.BigEndian.Uint64(b[16:])
	r.Len = binary.BigEndian.Uint32(b[24:])
	return binary.BigEndian.Uint32(b) == MagicRequest
}

// Append appends the request: the client's side.
func (r *Request) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, MagicRequest)
	b = binary.BigEndian.AppendUint16(b, r.Flags)
	b = binary.BigEndian.AppendUint16(b, uint16(r.Cmd))
	b = binary.BigEndian.AppendUint64(b, r.Cookie)
	b = binary.BigEndian.AppendUint64(b, r.Off)
	return binary.BigEndian.AppendUint32(b, r.Len)
}

// PutSimple writes a simple reply into b and returns its length. The data of
// a successful read follows it.
func PutSimple(b []byte, cookie uint64, errno Errno) int {
	_ = b[SimpleLen-1]
	binary.BigEndian.PutUint32(b, MagicSimple)
	binary.BigEndian.PutUint32(b[4:], uint32(errno))
	binary.BigEndian.PutUint64(b[8:], cookie)
	return SimpleLen
}

// PutChunk writes the header of the only chunk of a structured reply, with
// length bytes of payload to follow, and returns its length.
func PutChunk(b []byte, kind uint16, cookie uint64, length uint32) int {
	_ = b[ChunkLen-1]
	binary.BigEndian.PutUint32(b, MagicStructured)
	binary.BigEndian.PutUint16(b[4:], ReplyFlagDone)
	binary.BigEndian.PutUint16(b[6:], kind)
	binary.BigEndian.PutUint64(b[8:], cookie)
	binary.BigEndian.PutUint32(b[16:], length)
	return ChunkLen
}

// PutOffsetData writes the head of an OFFSET_DATA chunk of n data bytes, n >=
// 1, and returns its length. The data follows it.
func PutOffsetData(b []byte, cookie, off uint64, n uint32) int {
	_ = b[OffsetDataLen-1]
	PutChunk(b, ReplyOffsetData, cookie, 8+n)
	binary.BigEndian.PutUint64(b[ChunkLen:], off)
	return OffsetDataLen
}

// PutErrorChunk writes a whole error chunk without a message and returns its
// length. errno must not be 0.
func PutErrorChunk(b []byte, cookie uint64, errno Errno) int {
	_ = b[ErrorChunkLen-1]
	PutChunk(b, ReplyError, cookie, 6)
	binary.BigEndian.PutUint32(b[ChunkLen:], uint32(errno))
	binary.BigEndian.PutUint16(b[ChunkLen+4:], 0)
	return ErrorChunkLen
}

// Reply is one reply header as a client reads it.
type Reply struct {
	Structured bool
	Flags      uint16 // structured: ReplyFlagDone
	Kind       uint16 // structured: ReplyNone, ReplyOffsetData, ...
	Cookie     uint64
	Errno      Errno  // simple
	Len        uint32 // structured: bytes of payload
}

// Parse reads a reply header from b and returns its length: SimpleLen or
// ChunkLen, and b must hold that much. 0 means a wrong magic number, or
// that b is too short.
func (r *Reply) Parse(b []byte) int {
	if len(b) < SimpleLen {
		return 0
	}
	r.Cookie = binary.BigEndian.Uint64(b[8:])
	switch magic := binary.BigEndian.Uint32(b); {
	case magic == MagicSimple:
		r.Structured, r.Errno = false, Errno(binary.BigEndian.Uint32(b[4:]))
		return SimpleLen
	case magic == MagicStructured && len(b) >= ChunkLen:
		r.Structured = true
		r.Flags = binary.BigEndian.Uint16(b[4:])
		r.Kind = binary.BigEndian.Uint16(b[6:])
		r.Len = binary.BigEndian.Uint32(b[16:])
		return ChunkLen
	}
	return 0
}
