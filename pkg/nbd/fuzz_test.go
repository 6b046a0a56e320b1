package nbd_test

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nbd"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/nbdtest"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/proto"
)

// FuzzTransmission feeds bytes in two pieces and compares with a slow reading
// of the same bytes, one request after the other.
func FuzzTransmission(f *testing.F) {
	stream, _, _ := mixed()
	f.Add(stream, uint16(30))
	f.Add(append(nbdtest.Request(nil, proto.CmdTrim, 1, 1, 0, 0xffffffff, nil), stream...), uint16(1))
	f.Add(nbdtest.Request(stream, proto.CmdDisc, 0, 0, 0, 0, stream), uint16(700))
	m, err := nbdtest.NewRAM(1<<20, 512)
	if err != nil {
		f.Fatal(err)
	}
	twin, err := nbdtest.NewRAM(1<<20, 512)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, in []byte, cut uint16) {
		clear(m.Bytes())
		clear(twin.Bytes())
		want := expected(twin, in)
		l := serve(t, m, nbd.Config{})
		go func() {
			k := min(int(cut), len(in))
			_, _ = l.Write(in[:k])
			_, _ = l.Write(in[k:])
			_ = l.Conn.(*net.UnixConn).CloseWrite()
		}()
		got, err := io.ReadAll(io.LimitReader(l, 64<<20))
		<-l.ended
		total := 0
		for _, w := range want {
			total += len(w)
		}
		// What fits the socket was sent before the end of the stream was seen;
		// a reset, where bytes were left unread, may overtake it.
		if err == nil && total < 64<<10 && len(got) != total {
			t.Fatalf("%d bytes of answers, want %d", len(got), total)
		}
		checkAnswers(t, got, want)
	})
}

// checkAnswers expects each answer of got to be one of want, each used once.
func checkAnswers(t *testing.T, got []byte, want [][]byte) {
	t.Helper()
	for len(got) > 0 {
		found := -1
		for i, w := range want {
			if bytes.HasPrefix(got, w) && (found < 0 || len(w) > len(want[found])) {
				found = i
			}
		}
		if found < 0 {
			for _, w := range want {
				if bytes.HasPrefix(w, got) {
					return // cut off by the end
				}
			}
			t.Fatalf("unexpected answer %x...", got[:min(len(got), 32)])
		}
		got = got[len(want[found]):]
		want = append(want[:found:found], want[found+1:]...)
	}
}

// expected is the slow twin: it reads in as a list of requests, carries each
// out at once, and returns the simple replies with their data.
func expected(m *nbdtest.RAM, in []byte) (want [][]byte) {
	for len(in) >= proto.RequestLen {
		var q proto.Request
		if !q.Parse(in) || q.Cmd == proto.CmdDisc {
			return want
		}
		in = in[proto.RequestLen:]
		r := &blk.Request{Off: q.Off, Len: q.Len}
		if q.Cmd == proto.CmdWrite {
			if uint64(q.Len) > uint64(len(in)) {
				return want
			}
			r.Buf, in = in[:q.Len], in[q.Len:]
		}
		errno := slowErrno(&q)
		if errno == 0 && q.Len > 0 {
			r.Op = map[proto.Command]blk.Op{proto.CmdRead: blk.Read, proto.CmdWrite: blk.Write,
				proto.CmdTrim: blk.Trim, proto.CmdWriteZeroes: blk.WriteZeroes}[q.Cmd]
			if q.Cmd == proto.CmdRead {
				r.Buf = make([]byte, q.Len)
			}
			if q.Cmd == proto.CmdTrim {
				end := r.End() &^ 511
				r.Off = (r.Off + 511) &^ 511
				r.Len = uint32(max(end, r.Off) - r.Off)
			}
			m.Do(r)
		}
		h := make([]byte, proto.SimpleLen)
		proto.PutSimple(h, q.Cookie, errno)
		if q.Cmd == proto.CmdRead && errno == 0 {
			h = append(h, r.Buf...)
		}
		want = append(want, h)
	}
	return want
}

// slowErrno says how a device of 1 MiB in blocks of 512 answers q.
func slowErrno(q *proto.Request) proto.Errno {
	flags := map[proto.Command]uint16{proto.CmdWriteZeroes: proto.CmdFlagNoHole}[q.Cmd] | proto.CmdFlagFUA
	past := map[proto.Command]proto.Errno{proto.CmdRead: proto.EINVAL, proto.CmdCache: proto.EINVAL,
		proto.CmdTrim: proto.EINVAL, proto.CmdWrite: proto.ENOSPC, proto.CmdWriteZeroes: proto.ENOSPC}
	unaligned := q.Off%512 != 0 || q.Len%512 != 0
	errno, ranged := past[q.Cmd]
	switch {
	case q.Flags&^flags != 0:
		return proto.EINVAL
	case q.Cmd == proto.CmdFlush && q.Off == 0 && q.Len == 0:
		return 0
	case !ranged:
		return proto.EINVAL
	case q.Len > proto.MaxPayload && (q.Cmd == proto.CmdRead || q.Cmd == proto.CmdWrite):
		return proto.EINVAL
	case q.Off > 1<<20 || uint64(q.Len) > 1<<20-q.Off:
		return errno
	case unaligned && q.Cmd != proto.CmdTrim && q.Cmd != proto.CmdCache:
		return proto.EINVAL
	}
	return 0
}
