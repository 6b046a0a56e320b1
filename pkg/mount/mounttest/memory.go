package mounttest

import (
	"errors"
	"io"
	"maps"
	"sync"
)

// Memory is a disk in memory: what was never written costs nothing.
type Memory struct {
	mu    sync.Mutex
	size  uint64
	pages map[int64]*[page]byte
	fail  error
	left  int64 // bytes readable before fail
}

const page = 4096

// NewMemory is a disk of zeroes, size bytes.
func NewMemory(size uint64) *Memory { return &Memory{size: size, pages: map[int64]*[page]byte{}} }

// Size implements Disk.
func (d *Memory) Size() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.size
}

// Resize makes it larger or smaller.
func (d *Memory) Resize(size uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.size = size
}

// Clone is another disk with the same content.
func (d *Memory) Clone() *Memory {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &Memory{size: d.size, pages: maps.Clone(d.pages)}
	for i, p := range c.pages {
		q := *p
		c.pages[i] = &q
	}
	return c
}

// ErrRead is what a disk that cannot be read says.
var ErrRead = errors.New("input/output error")

// FailReads makes every read that goes past off fail; a negative off ends that.
func (d *Memory) FailReads(off int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail, d.left = ErrRead, off
	if off < 0 {
		d.fail = nil
	}
}

// ReadAt implements io.ReaderAt.
func (d *Memory) ReadAt(b []byte, off int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil && off+int64(len(b)) > d.left {
		return 0, d.fail
	}
	return d.each(b, off, func(p *[page]byte, in int64, part []byte) {
		if p == nil {
			clear(part)
			return
		}
		copy(part, p[in:])
	}, false)
}

// WriteAt implements io.WriterAt.
func (d *Memory) WriteAt(b []byte, off int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.each(b, off, func(p *[page]byte, in int64, part []byte) { copy(p[in:], part) }, true)
}

func (d *Memory) each(b []byte, off int64, f func(p *[page]byte, in int64, part []byte), grow bool) (int, error) {
	if off < 0 || uint64(off)+uint64(len(b)) > d.size {
		return 0, io.ErrUnexpectedEOF
	}
	for done := 0; done < len(b); {
		at := off + int64(done)
		in := at % page
		part := b[done:min(len(b), done+page-int(in))]
		p := d.pages[at/page]
		if p == nil && grow {
			p = new([page]byte)
			d.pages[at/page] = p
		}
		f(p, in, part)
		done += len(part)
	}
	return len(b), nil
}
