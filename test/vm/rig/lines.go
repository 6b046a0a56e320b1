package rig

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	interop "github.com/csi-mpath/csi-mpath/test/interop/rig"
)

// line is one line that a program printed, and when it came.
type line struct {
	at   time.Time
	text string
}

// lines remembers what a program prints. Written by the goroutine that copies
// the program's output, read by the test; mu guards all.
type lines struct {
	mu      sync.Mutex
	partial []byte
	all     []line
	dropped int // lines forgotten at the beginning
}

// Write implements io.Writer.
func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.partial = append(l.partial, b...)
	for {
		i := bytes.IndexByte(l.partial, '\n')
		if i < 0 && len(l.partial) < maxLine {
			return len(b), nil
		}
		if i < 0 {
			i = len(l.partial) - 1
		}
		l.all = append(l.all, line{time.Now(), string(l.partial[:i])})
		l.partial = l.partial[i+1:]
		if len(l.all) > maxLines {
			l.dropped++
			l.all = l.all[1:]
		}
	}
}

func (l *lines) mark() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropped + len(l.all)
}

func (l *lines) find(text string, from int) (line, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range l.all[min(max(from-l.dropped, 0), len(l.all)):] {
		if strings.Contains(x.text, text) {
			return x, true
		}
	}
	return line{}, false
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for _, x := range l.all {
		fmt.Fprintln(&b, x.text)
	}
	return b.String()
}

// Mark is a place in what the product has printed: now.
func (p *Product) Mark() int { return p.lines.mark() }

// Await waits for a line that holds text, printed since mark, and says when it
// came. The product's end is an error.
func (p *Product) Await(ctx context.Context, text string, mark int) (time.Time, string, error) {
	var x line
	err := interop.Until(ctx, lineWithin, fmt.Sprintf("csi-mpath to print %q", text), func() (ok bool) {
		x, ok = p.lines.find(text, mark)
		return ok || !p.c.Alive()
	})
	if err == nil && x.text == "" {
		err = fmt.Errorf("csi-mpath has ended without printing %q: %w", text, p.c.Wait())
	}
	if err != nil {
		return time.Time{}, "", fmt.Errorf("%w; it printed:\n%s", err, tail(p.lines.text()))
	}
	return x.at, x.text, nil
}
