package pdu

import (
	"bytes"
	"reflect"
	"testing"
)

// layoutOf makes any layout of one byte.
func layoutOf(v byte) Layout { return Layout{v&1 != 0, v&2 != 0, v >> 2 & MaxAlign} }

// event is a PDU as a receiver sees it.
type event struct {
	h    Header
	head string
	data string
	err  string
}

// receiver is the obvious user of Open: it keeps what it cannot use yet.
type receiver struct {
	l   Layout
	buf []byte
	out []event
}

func (r *receiver) feed(b []byte) (over bool) {
	for r.buf = append(r.buf, b...); ; {
		h, more, err := r.l.Open(r.buf)
		if err != nil {
			r.out = append(r.out, event{err: err.Error()})
			return true
		}
		if more > len(r.buf) || len(r.buf) < h.Size || more > 0 {
			return false
		}
		e := event{h: h, head: string(r.buf[:h.Len]), data: string(r.buf[h.DataOff : h.DataOff+h.Data])}
		if h.Type >= TypeCapsuleCmd {
			if err := r.l.CheckTrailer(r.buf[h.DataOff+h.Data:h.Size], h.Data, CRC(0, []byte(e.data))); err != nil {
				e.err = err.Error()
			}
		}
		r.out, r.buf = append(r.out, e), r.buf[h.Size:]
	}
}

func run(l Layout, pieces ...[]byte) []event {
	r := receiver{l: l}
	for _, p := range pieces {
		if r.feed(p) {
			break
		}
	}
	return r.out
}

// stream is one PDU of each kind.
func stream(l Layout) []byte {
	var out []byte
	b := make([]byte, 512)
	with := func(at int, data string) {
		out = append(append(out, b[:at]...), data...)
		out = out[:len(out)+l.PutTrailer(out[len(out):cap(out)], len(data), CRC(0, []byte(data)))]
	}
	out = make([]byte, 0, 4096)
	with(l.PutCapsuleCmd(b, 0), "")
	with(l.PutCapsuleCmd(b, 5), "write")
	with((&R2T{CID: 1, Tag: 2, Len: 9}).Put(b, l), "")
	with((&Data{CID: 1, Tag: 2, Len: 9, Last: true}).PutH2C(b, l), "123456789")
	with((&Data{CID: 3, Len: 4}).PutC2H(b, l), "read")
	with((&Data{CID: 3, Offset: 4, Len: 1, Last: true, Success: true}).PutC2H(b, l), "!")
	with(l.PutCapsuleResp(b), "")
	return (&TermReq{Status: InvalidField, Offender: []byte("why")}).Append(out)
}

func TestAStreamIsTheSameWhereverItIsCut(t *testing.T) {
	for v := range byte(128) {
		l := layoutOf(v)
		b := stream(l)
		whole := run(l, b)
		if len(whole) != 8 {
			t.Fatalf("%+v: %d PDUs: %+v", l, len(whole), whole)
		}
		for _, e := range whole {
			if e.err != "" {
				t.Fatalf("%+v: %s", l, e.err)
			}
		}
		for i := range b {
			if got := run(l, b[:i], b[i:]); !reflect.DeepEqual(got, whole) {
				t.Fatalf("%+v cut at %d: %+v", l, i, got)
			}
		}
	}
}

func FuzzStream(f *testing.F) {
	for _, v := range []byte{0, 1, 2, 3, 7, 127} {
		f.Add(v, stream(layoutOf(v)))
	}
	f.Add(byte(0), (&TermReq{FromController: true, Status: SequenceError}).Append(nil))
	f.Fuzz(func(t *testing.T, v byte, b []byte) {
		l := layoutOf(v)
		whole := run(l, b)
		bytewise := make([][]byte, len(b))
		for i := range b {
			bytewise[i] = b[i : i+1]
		}
		if got := run(l, bytewise...); !reflect.DeepEqual(got, whole) {
			t.Fatalf("byte by byte %+v, at once %+v", got, whole)
		}
		for _, e := range whole {
			if e.err == "" {
				reencode(t, l, &e)
			}
		}
	})
}

// reencode: what was understood survives a round trip.
func reencode(t *testing.T, l Layout, e *event) {
	h := []byte(e.head)
	b := make([]byte, 512)
	copy(b, h)
	var at int
	switch e.h.Type {
	case TypeICReq, TypeICResp:
		decodeInit(t, h)
		return
	case TypeH2CTerm, TypeC2HTerm:
		var p, q TermReq
		if err := p.Decode([]byte(e.head + e.data)); err != nil {
			t.Fatal(err)
		}
		if err := q.Decode(p.Append(nil)); err != nil || !reflect.DeepEqual(p, q) {
			t.Fatalf("%+v became %+v, %v", p, q, err)
		}
		return
	case TypeCapsuleCmd:
		at = l.PutCapsuleCmd(b, e.h.Data)
	case TypeCapsuleResp:
		at = l.PutCapsuleResp(b)
	case TypeR2T:
		var p R2T
		if p.Decode(h) != nil {
			return
		}
		at = p.Put(b, l)
	case TypeH2CData:
		var p Data
		if p.DecodeH2C(h, e.h) != nil {
			return
		}
		at = p.PutH2C(b, l)
	case TypeC2HData:
		var p Data
		if p.DecodeC2H(h, e.h) != nil {
			return
		}
		at = p.PutC2H(b, l)
	}
	g, more, err := l.Open(b[:at])
	if err != nil || more != 0 || g.Type != e.h.Type || g.Data != e.h.Data || g.DataOff > e.h.DataOff {
		t.Fatalf("%+v became %+v, %d, %v", e.h, g, more, err)
	}
	if !bytes.Equal(b[CommonLen:20], h[CommonLen:20]) {
		t.Fatalf("%x became %x", h, b[:at])
	}
}

func decodeInit(t *testing.T, b []byte) {
	twice := make([]byte, InitLen)
	var p, q ICReq
	if p.Decode(b) == nil {
		p.Put(twice)
		if err := q.Decode(twice); err != nil || p != q {
			t.Fatalf("%+v became %+v, %v", p, q, err)
		}
	}
	var r, s ICResp
	if r.Decode(b) == nil {
		r.Put(twice)
		if err := s.Decode(twice); err != nil || r != s {
			t.Fatalf("%+v became %+v, %v", r, s, err)
		}
	}
}
