// Package probe is an NBD client that times and checks every request it makes.
//
// It shares no code with pkg/nbd: what one of them misreads, the other shows.
package probe

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// NBD constants (proto.md).
const (
	magicServer = 0x4e42444d41474943 // "NBDMAGIC"
	magicOption = 0x49484156454F5054 // "IHAVEOPT"
	magicReply  = 0x3e889045565a9
	magicReq    = 0x25609513
	magicSimple = 0x67446698

	optGo      = 7
	repAck     = 1
	repInfo    = 3
	infoExport = 0

	cmdRead  = 0
	cmdWrite = 1
	cmdDisc  = 2
	cmdFlush = 3
)

// handshakeWithin bounds Dial.
const handshakeWithin = 10 * time.Second

// maxOption bounds one option reply of the server, bytes.
const maxOption = 4096

// Conn is one NBD connection. Any number of goroutines may make requests on it.
type Conn struct {
	conn net.Conn
	r    *bufio.Reader
	size uint64

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]call
	err     error // why the connection is gone
}

type call struct {
	read []byte // destination of a read
	done chan error
}

// Dial connects to the default export on a unix socket.
func Dial(ctx context.Context, socket string) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeWithin)
	defer cancel()
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	c := &Conn{conn: nc, r: bufio.NewReaderSize(nc, 64<<10), waiting: map[uint64]call{}}
	deadline, _ := ctx.Deadline()
	_ = nc.SetDeadline(deadline)
	if err := c.handshake(); err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("NBD handshake with %s: %w", socket, err)
	}
	_ = nc.SetDeadline(time.Time{})
	go c.receive()
	return c, nil
}

func (c *Conn) handshake() error {
	var hello struct {
		Server, Option uint64
		Flags          uint16
	}
	if err := binary.Read(c.r, binary.BigEndian, &hello); err != nil {
		return err
	}
	if hello.Server != magicServer || hello.Option != magicOption || hello.Flags&1 == 0 {
		return errors.New("not a fixed newstyle server")
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(hello.Flags&3)) // fixed newstyle, no zeroes
	b = binary.BigEndian.AppendUint64(b, magicOption)
	b = binary.BigEndian.AppendUint32(b, optGo)
	b = binary.BigEndian.AppendUint32(b, 4+2)
	b = append(b, 0, 0, 0, 0, 0, 0) // name "", no info requests
	if _, err := c.conn.Write(b); err != nil {
		return err
	}
	for {
		done, err := c.optionReply()
		if done || err != nil {
			return err
		}
	}
}

// optionReply reads one reply to NBD_OPT_GO and reports the last one.
func (c *Conn) optionReply() (bool, error) {
	var h struct {
		Magic             uint64
		Option, Type, Len uint32
	}
	if err := binary.Read(c.r, binary.BigEndian, &h); err != nil {
		return false, err
	}
	if h.Magic != magicReply || h.Option != optGo || h.Len > maxOption {
		return false, fmt.Errorf("bad option reply %+v", h)
	}
	data := make([]byte, h.Len)
	if _, err := io.ReadFull(c.r, data); err != nil {
		return false, err
	}
	switch {
	case h.Type == repAck && c.size == 0:
		return false, errors.New("the server gave no export size")
	case h.Type == repAck:
		return true, nil
	case h.Type == repInfo && len(data) == 12 && binary.BigEndian.Uint16(data) == infoExport:
		c.size = binary.BigEndian.Uint64(data[2:])
	case h.Type&(1<<31) != 0:
		return false, fmt.Errorf("the server refused the export: error %#x %q", h.Type, data)
	}
	return false, nil
}

// Size is the export's size in bytes.
func (c *Conn) Size() uint64 { return c.size }

// Read fills buf from off.
func (c *Conn) Read(off uint64, buf []byte) error {
	return c.do(cmdRead, off, uint32(len(buf)), nil, buf)
}

// Write writes buf at off.
func (c *Conn) Write(off uint64, buf []byte) error {
	return c.do(cmdWrite, off, uint32(len(buf)), buf, nil)
}

// Flush makes all answered writes durable.
func (c *Conn) Flush() error { return c.do(cmdFlush, 0, 0, nil, nil) }

func (c *Conn) do(cmd uint16, off uint64, n uint32, payload, dst []byte) error {
	done := make(chan error, 1)
	if err := c.send(cmd, off, n, payload, call{read: dst, done: done}); err != nil {
		return err
	}
	return <-done
}

func (c *Conn) send(cmd uint16, off uint64, n uint32, payload []byte, w call) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	c.next++
	c.waiting[c.next] = w
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 28+len(payload)), magicReq)
	b = binary.BigEndian.AppendUint16(b, 0)
	b = binary.BigEndian.AppendUint16(b, cmd)
	b = binary.BigEndian.AppendUint64(b, c.next)
	b = binary.BigEndian.AppendUint64(b, off)
	b = binary.BigEndian.AppendUint32(b, n)
	if _, err := c.conn.Write(append(b, payload...)); err != nil {
		delete(c.waiting, c.next)
		return lost(err) // the receiver may not have noticed yet
	}
	return nil
}

func lost(err error) error { return fmt.Errorf("NBD connection lost: %w", err) }

// receive hands each answer to its caller until the connection ends.
func (c *Conn) receive() {
	var err error
	for err == nil {
		err = c.answer()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = lost(err)
	for h, w := range c.waiting {
		delete(c.waiting, h)
		w.done <- c.err
	}
}

func (c *Conn) answer() error {
	var h [16]byte
	if _, err := io.ReadFull(c.r, h[:]); err != nil {
		return err
	}
	if m := binary.BigEndian.Uint32(h[:]); m != magicSimple {
		return fmt.Errorf("bad reply magic %#x", m)
	}
	handle := binary.BigEndian.Uint64(h[8:])
	c.mu.Lock()
	w, ok := c.waiting[handle]
	delete(c.waiting, handle)
	c.mu.Unlock()
	if !ok {
		return fmt.Errorf("an answer to handle %d, which is not outstanding (answered twice?)", handle)
	}
	if code := binary.BigEndian.Uint32(h[4:]); code != 0 {
		w.done <- fmt.Errorf("the server answered with error %d", code)
		return nil
	}
	_, err := io.ReadFull(c.r, w.read)
	w.done <- err
	return err
}

// Close says goodbye and closes the connection.
func (c *Conn) Close() error {
	err := c.send(cmdDisc, 0, 0, nil, call{done: make(chan error, 1)})
	return errors.Join(err, c.conn.Close())
}
