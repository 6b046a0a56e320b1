package nbdtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/nbd/proto"
)

// maxAnswer bounds what the client believes of a length on the wire, bytes.
const maxAnswer = proto.MaxPayload + 4096

// Client is a plain NBD client: one call, one system call or more, no
// pipelining of its own. For tests.
type Client struct {
	net.Conn
	// Size and Flags are what the export said.
	Size  uint64
	Flags uint16
}

// Pair returns the two ends of a connected unix stream socket.
func Pair() (client, server net.Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socketpair")
		var cerr error
		ends[i], cerr = net.FileConn(f)
		err = errors.Join(err, cerr, f.Close())
	}
	return ends[0], ends[1], err
}

// Dial connects to a unix socket and goes through the handshake with GO.
func Dial(socket, export string, structured bool) (*Client, error) {
	nc, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	c := &Client{Conn: nc}
	if err := c.handshake(export, structured); err != nil {
		_ = nc.Close()
		return nil, err
	}
	return c, nil
}

func (c *Client) handshake(export string, structured bool) error {
	if _, err := io.ReadFull(c, make([]byte, proto.GreetingLen)); err != nil {
		return err
	}
	out := binary.BigEndian.AppendUint32(nil, proto.ClientFlags)
	if structured {
		out = proto.AppendOption(out, proto.OptStructuredReply, 0)
	}
	payload := proto.AppendGo(nil, export, proto.InfoBlockSize)
	out = append(proto.AppendOption(out, proto.OptGo, uint32(len(payload))), payload...)
	if _, err := c.Write(out); err != nil {
		return err
	}
	for {
		opt, rep, data, err := c.ReadRep()
		switch {
		case err != nil:
			return err
		case rep >= 1<<31:
			return fmt.Errorf("option %d refused with %#x: %s", opt, uint32(rep), data)
		case rep == proto.RepInfo && len(data) == 12:
			c.Size = binary.BigEndian.Uint64(data[2:])
			c.Flags = binary.BigEndian.Uint16(data[10:])
		case rep == proto.RepAck && opt == proto.OptGo:
			return nil
		}
	}
}

// ReadRep reads one option reply.
func (c *Client) ReadRep() (proto.Option, proto.Rep, []byte, error) {
	var h [proto.OptionRepLen]byte
	if _, err := io.ReadFull(c, h[:]); err != nil {
		return 0, 0, nil, err
	}
	opt, rep, n, err := proto.ParseRep(h[:])
	if err != nil || n > maxAnswer {
		return 0, 0, nil, errors.Join(err, fmt.Errorf("option reply of %d bytes", n))
	}
	data := make([]byte, n)
	_, err = io.ReadFull(c, data)
	return opt, rep, data, err
}

// Request appends one request with its payload, a write's data, to b.
func Request(b []byte, cmd proto.Command, flags uint16, cookie, off uint64, n uint32, payload []byte) []byte {
	q := proto.Request{Cmd: cmd, Flags: flags, Cookie: cookie, Off: off, Len: n}
	return append(q.Append(b), payload...)
}

// Answer is one reply, simple or structured.
type Answer struct {
	Cookie uint64
	Errno  proto.Errno
	Data   []byte
	Kind   uint16 // of a structured chunk
	Struct bool
}

// ReadAnswer reads one reply. want gives the data bytes a successful simple
// reply to cookie carries; structured replies say it themselves.
func (c *Client) ReadAnswer(want func(cookie uint64) int) (Answer, error) {
	var h [proto.ChunkLen]byte
	var r proto.Reply
	if _, err := io.ReadFull(c, h[:proto.SimpleLen]); err != nil {
		return Answer{}, err
	}
	if binary.BigEndian.Uint32(h[:]) == proto.MagicStructured {
		if _, err := io.ReadFull(c, h[proto.SimpleLen:]); err != nil {
			return Answer{}, err
		}
	}
	if r.Parse(h[:]) == 0 {
		return Answer{}, fmt.Errorf("not a reply: % x", h)
	}
	a := Answer{Cookie: r.Cookie, Errno: r.Errno, Kind: r.Kind, Struct: r.Structured}
	if r.Structured {
		return a, c.chunk(&a, r)
	}
	if r.Errno == 0 && want != nil {
		a.Data = make([]byte, want(r.Cookie))
		_, err := io.ReadFull(c, a.Data)
		return a, err
	}
	return a, nil
}

func (c *Client) chunk(a *Answer, r proto.Reply) error {
	if r.Len > maxAnswer || r.Flags != proto.ReplyFlagDone {
		return fmt.Errorf("chunk of %d bytes, flags %#x", r.Len, r.Flags)
	}
	body := make([]byte, r.Len)
	if _, err := io.ReadFull(c, body); err != nil {
		return err
	}
	switch {
	case r.Kind == proto.ReplyNone && len(body) == 0:
	case r.Kind == proto.ReplyOffsetData && len(body) > 8:
		a.Data = body[8:]
	case r.Kind == proto.ReplyError && len(body) == 6:
		a.Errno = proto.Errno(binary.BigEndian.Uint32(body))
	default:
		return fmt.Errorf("chunk kind %#x of %d bytes", r.Kind, len(body))
	}
	return nil
}

// Do sends one request and reads one answer.
func (c *Client) Do(cmd proto.Command, flags uint16, off uint64, n uint32, payload []byte) (Answer, error) {
	if _, err := c.Write(Request(nil, cmd, flags, off, off, n, payload)); err != nil {
		return Answer{}, err
	}
	return c.ReadAnswer(func(uint64) int {
		if cmd == proto.CmdRead {
			return int(n)
		}
		return 0
	})
}
