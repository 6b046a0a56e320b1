// Package faultproxy is a TCP proxy that breaks connections on purpose: the
// network failures a multipath datapath must survive, each at a byte, at a
// time, or at once.
//
//	p, err := faultproxy.Listen("127.0.0.1:0", target)
//	p.Now(faultproxy.Fault{Kind: faultproxy.BlackHole})
//	p.AtByte(48, faultproxy.Fault{Kind: faultproxy.Flip, Dir: faultproxy.ToClient})
//	err = p.Heal()
//
// A byte that entered a black hole is gone for good, as is every later byte of
// that connection and direction: a stream with a gap must never go on. Only a
// Hold delivers later, all of it, in order.
package faultproxy

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Dir is a direction of bytes.
type Dir uint8

// The directions; the zero value is Both.
const (
	Both Dir = iota
	ToTarget
	ToClient
)

var dirNames = map[string]Dir{"both": Both, "to-target": ToTarget, "to-client": ToClient}

func (d Dir) has(one Dir) bool { return d == Both || d == one }

// Kind is what goes wrong.
type Kind uint8

// The kinds. Delay, Throttle, Hold and BlackHole are conditions: given to Now
// they also meet connections made later, until Heal. The others are events.
const (
	// Cut ends the direction with FIN; bytes after it are discarded.
	Cut Kind = iota + 1
	// Reset sends RST to the receiver of the direction. Reset of one direction
	// leaves the other end half-open: it is not told.
	Reset
	// BlackHole discards every byte, FIN and RST from now on.
	BlackHole
	// Hold keeps every byte, FIN and RST back until Release or Heal.
	Hold
	// Delay delivers each byte Wait later.
	Delay
	// Throttle limits each connection to Rate bytes per second.
	Throttle
	// Drop leaves the next Count bytes out of the stream and goes on.
	Drop
	// Flip inverts the bits of Mask in the next Count bytes.
	Flip
	// release ends a hold; only within the package.
	release
)

var kindNames = map[string]Kind{"cut": Cut, "reset": Reset, "hole": BlackHole, "hold": Hold,
	"delay": Delay, "throttle": Throttle, "drop": Drop, "flip": Flip}

// Fault is one thing that goes wrong.
type Fault struct {
	Kind Kind
	Dir  Dir
	// Wait is Delay's; 0 ends it.
	Wait time.Duration
	// Rate is Throttle's, bytes per second; 0 ends it.
	Rate int64
	// Count is Drop's and Flip's, bytes; 0 means 1.
	Count int64
	// Mask is Flip's; 0 means the lowest bit.
	Mask byte
}

func (f Fault) condition() bool {
	return f.Kind == BlackHole || f.Kind == Hold || f.Kind == Delay || f.Kind == Throttle
}

func (f Fault) check() error {
	switch {
	case f.Kind < Cut || f.Kind > Flip:
		return fmt.Errorf("faultproxy: unknown kind %d", f.Kind)
	case f.Dir > ToClient:
		return fmt.Errorf("faultproxy: unknown direction %d", f.Dir)
	case f.Wait < 0 || f.Rate < 0 || f.Count < 0:
		return errors.New("faultproxy: a negative wait, rate or count")
	}
	return nil
}

// order is a parsed line: a fault and when.
type order struct {
	fault  Fault
	at     int64 // byte, -1 for none
	after  time.Duration
	hasFor bool
}

// parseOrder reads "KIND [VALUE [MASK]] [DIRECTION] [at BYTE | after DURATION]".
func parseOrder(words []string) (o order, err error) {
	o.at = -1
	o.fault.Kind = kindNames[words[0]]
	if o.fault.Kind == 0 {
		return o, fmt.Errorf("unknown command %q; try help", words[0])
	}
	words = words[1:]
	if words, err = o.fault.values(words); err != nil {
		return o, err
	}
	if len(words) > 0 {
		if d, ok := dirNames[words[0]]; ok {
			o.fault.Dir, words = d, words[1:]
		}
	}
	return o, o.when(words)
}

func (o *order) when(words []string) (err error) {
	switch {
	case len(words) == 0:
		return nil
	case len(words) == 2 && words[0] == "at":
		o.at, err = number(words[1])
		return err
	case len(words) == 2 && words[0] == "after":
		o.after, err = time.ParseDuration(words[1])
		o.hasFor = true
		return err
	}
	return fmt.Errorf("do not understand %q", strings.Join(words, " "))
}

// values takes the arguments of the kind off words.
func (f *Fault) values(words []string) ([]string, error) {
	var err error
	next := func() string {
		if len(words) == 0 {
			return ""
		}
		w := words[0]
		words = words[1:]
		return w
	}
	switch f.Kind {
	case Delay:
		f.Wait, err = time.ParseDuration(next())
	case Throttle:
		f.Rate, err = number(next())
	case Drop:
		f.Count, err = number(next())
	case Flip:
		if f.Count, err = number(next()); err == nil && len(words) > 0 && strings.HasPrefix(words[0], "0x") {
			var m uint64
			m, err = strconv.ParseUint(next()[2:], 16, 8)
			f.Mask = byte(m)
		}
	}
	return words, err
}

func number(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is not a number of 0 or more", s)
	}
	return n, nil
}
