package probe

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// memory is an NBD server over a byte slice, just enough for the probe, with
// hooks for what may go wrong.
type memory struct {
	disk []byte
	mu   sync.Mutex
	// write may drop a write, or change it, before it lands.
	write func(off uint64, b []byte) bool
	// code is the error of a request, 0 for none; it may block.
	code func(cmd uint16) uint32
}

func serve(t *testing.T, m *memory) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "x")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		m.handshake(c)
		var out sync.Mutex
		for m.request(c, &out) == nil {
		}
	}()
	return socket
}

func (m *memory) handshake(c net.Conn) {
	b := binary.BigEndian.AppendUint64(nil, magicServer)
	b = binary.BigEndian.AppendUint64(b, magicOption)
	_, _ = c.Write(binary.BigEndian.AppendUint16(b, 3))
	_, _ = io.ReadFull(c, make([]byte, 4+8+4+4+6))
	reply := func(kind uint32, data []byte) {
		b := binary.BigEndian.AppendUint64(nil, magicReply)
		b = binary.BigEndian.AppendUint32(b, optGo)
		b = binary.BigEndian.AppendUint32(b, kind)
		b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
		_, _ = c.Write(append(b, data...))
	}
	info := binary.BigEndian.AppendUint16(nil, infoExport)
	info = binary.BigEndian.AppendUint64(info, uint64(len(m.disk)))
	reply(repInfo, append(info, 0, 1))
	reply(repAck, nil)
}

func (m *memory) request(c net.Conn, out *sync.Mutex) error {
	h := make([]byte, 28)
	if _, err := io.ReadFull(c, h); err != nil {
		return err
	}
	cmd, handle := binary.BigEndian.Uint16(h[6:]), h[8:16]
	off, n := binary.BigEndian.Uint64(h[16:]), binary.BigEndian.Uint32(h[24:])
	var payload []byte
	if cmd == cmdWrite {
		payload = make([]byte, n)
		if _, err := io.ReadFull(c, payload); err != nil {
			return err
		}
	}
	if cmd == cmdDisc {
		return io.EOF
	}
	go func() {
		answer := binary.BigEndian.AppendUint32(nil, magicSimple)
		var code uint32
		if m.code != nil {
			code = m.code(cmd)
		}
		answer = append(binary.BigEndian.AppendUint32(answer, code), handle...)
		answer = append(answer, m.access(cmd, code, off, n, payload)...)
		out.Lock()
		defer out.Unlock()
		_, _ = c.Write(answer)
	}()
	return nil
}

func (m *memory) access(cmd uint16, code uint32, off uint64, n uint32, payload []byte) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case code != 0:
	case cmd == cmdWrite && (m.write == nil || m.write(off, payload)):
		copy(m.disk[off:], payload)
	case cmd == cmdRead:
		return append([]byte(nil), m.disk[off:off+uint64(n)]...)
	}
	return nil
}

// runFor lets a probe make n requests, or fail, and stops it.
func runFor(t *testing.T, p *Probe, n int) error {
	t.Helper()
	until(t, func() bool { return p.Requests() >= n || p.Err() != nil })
	return p.Stop()
}

func until(t *testing.T, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for !done() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("waited a minute in vain")
		}
	}
}

func start(t *testing.T, m *memory, opt Options) *Probe {
	t.Helper()
	p, err := Start(t.Context(), serve(t, m), opt)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var small = Options{Off: 8 * Block, Size: 16 * Block, Workers: 4}

func TestACleanServerGivesNoFailure(t *testing.T) {
	p := start(t, &memory{disk: make([]byte, 32*Block)}, small)
	if err := runFor(t, p, 500); err != nil {
		t.Fatal(err)
	}
}

func TestTheProbeStaysInItsRegion(t *testing.T) {
	m := &memory{disk: make([]byte, 32*Block)}
	if err := runFor(t, start(t, m, small), 500); err != nil {
		t.Fatal(err)
	}
	for i, b := range m.disk {
		if b != 0 && (i < 8*Block || i >= 24*Block) {
			t.Fatalf("byte %d was written", i)
		}
	}
}

func TestALostWriteIsAMismatch(t *testing.T) {
	n := 0
	m := &memory{disk: make([]byte, 32*Block), write: func(uint64, []byte) bool { n++; return n < 100 }}
	if err := runFor(t, start(t, m, small), 500); err == nil || !strings.Contains(err.Error(), "MISMATCH") {
		t.Fatalf("got %v, want a mismatch", err)
	}
}

func TestAStaleWriteAfterTheLoadIsFoundByTheLastLook(t *testing.T) {
	var first []byte
	m := &memory{disk: make([]byte, 32*Block), write: func(off uint64, b []byte) bool {
		if off == 8*Block && first == nil {
			first = append([]byte(nil), b...)
		}
		return true
	}}
	p := start(t, m, Options{Off: 8 * Block, Size: Block, Workers: 1, Hot: true})
	until(t, func() bool { return p.Requests() >= 10 })
	close(p.stop)
	p.wg.Wait()
	p.stop = make(chan struct{})
	m.mu.Lock()
	copy(m.disk[8*Block:], first)
	m.mu.Unlock()
	if err := p.Stop(); err == nil || !strings.Contains(err.Error(), "last look: MISMATCH") {
		t.Fatalf("got %v, want a mismatch", err)
	}
}

func TestAnErrorOfTheServerIsAFailure(t *testing.T) {
	m := &memory{disk: make([]byte, 32*Block), code: func(uint16) uint32 { return 5 }}
	if err := runFor(t, start(t, m, small), 1); err == nil || !strings.Contains(err.Error(), "error 5") {
		t.Fatalf("got %v, want error 5", err)
	}
}

func TestWorstCountsARequestThatHasNoAnswerYet(t *testing.T) {
	hold := make(chan struct{})
	m := &memory{disk: make([]byte, 32*Block), code: func(uint16) uint32 { <-hold; return 0 }}
	p := start(t, m, small)
	until(t, func() bool { _, n := p.Worst(0, p.Now()); return n == 4 && p.Oldest() >= 20*time.Millisecond })
	if worst, n := p.Worst(0, p.Now()); n != 4 || worst < 20*time.Millisecond {
		t.Fatalf("got %v of %d requests, want at least 20 ms of 4", worst, n)
	}
	close(hold)
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
}

func TestTheEndOfTheConnectionFailsWhatIsWaiting(t *testing.T) {
	m := &memory{disk: make([]byte, 32*Block)}
	p := start(t, m, small)
	_ = p.conn.conn.Close()
	if err := runFor(t, p, 1<<30); err == nil || !strings.Contains(err.Error(), "connection lost") {
		t.Fatalf("got %v, want a lost connection", err)
	}
}
