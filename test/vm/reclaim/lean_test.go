//go:build vm

package reclaim

import (
	"encoding/binary"
	"fmt"
	"sync"
	"testing"

	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
)

const block = 4096 // bytes; of the volume, too

// lean is a store larger than the memory it takes: of a block that repeats one
// word it keeps the word. That is what the test writes; what a file system adds
// of its own is kept in full.
type lean struct {
	mu    sync.Mutex // guards all
	words []uint64   // of each block
	full  map[uint64][]byte
}

func newLean(size uint64) *lean {
	return &lean{words: make([]uint64, size/block), full: map[uint64][]byte{}}
}

func (l *lean) Size() uint64 { return uint64(len(l.words)) * block }
func (l *lean) Flush() error { return nil }
func (l *lean) Close() error { return nil }

func (l *lean) ReadAt(p []byte, off uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for ; len(p) > 0; p, off = p[block:], off+block {
		if b, ok := l.full[off/block]; ok {
			copy(p, b)
			continue
		}
		repeat(p[:block], l.words[off/block])
	}
	return nil
}

func (l *lean) WriteAt(p []byte, off uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for ; len(p) > 0; p, off = p[block:], off+block {
		l.put(p[:block], off/block)
	}
	return nil
}

func (l *lean) put(b []byte, i uint64) {
	w, same := repeated(b)
	if same {
		l.words[i] = w
		delete(l.full, i)
		return
	}
	if l.full[i] == nil {
		l.full[i] = make([]byte, block)
	}
	copy(l.full[i], b)
}

func (l *lean) Zero(off, n uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := off / block; i < (off+n)/block; i++ {
		l.words[i] = 0
		delete(l.full, i)
	}
	return nil
}

// repeat fills b with a word.
func repeat(b []byte, w uint64) {
	binary.LittleEndian.PutUint64(b, w)
	for n := 8; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// repeated tells whether b repeats one word, and which.
func repeated(b []byte) (uint64, bool) {
	w := binary.LittleEndian.Uint64(b)
	return w, string(b[8:]) == string(b[:len(b)-8])
}

func TestTheLeanStoreGivesBackWhatWasWritten(t *testing.T) {
	kmsg.Watch(t)
	l := newLean(8 * block)
	want := make([]byte, 8*block)
	for i := range 8 {
		repeat(want[i*block:(i+1)*block], uint64(i)*0x0102030405060708)
	}
	want[3*block+17]++
	for _, n := range []uint64{5, 3} { // over each other
		if err := l.WriteAt(want[n*block:], n*block); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.WriteAt(want, 0); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if err := l.ReadAt(got, 0); err != nil || string(got) != string(want) {
		t.Fatal("it does not", err)
	}
	if len(l.full) != 1 {
		t.Fatal(fmt.Sprint(len(l.full), " blocks are kept in full, want 1"))
	}
	if err := l.Zero(2*block, 2*block); err != nil || len(l.full) != 0 || l.words[2] != 0 || l.words[1] == 0 {
		t.Fatal("zeroes", err)
	}
}
