package nbd

import (
	"math/big"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/proto"
)

func info4k(size uint64) *Info {
	return &Info{Size: size, Limits: blk.Limits{BlockSize: 4096, MaxUnmap: 1 << 30}}
}

func TestRequestsAreCheckedAsTheSpecificationSays(t *testing.T) {
	const size = 1 << 30
	plain := &Info{Size: size, Limits: blk.Limits{BlockSize: 512, MaxUnmap: size}}
	readOnly := &Info{Size: size, Limits: blk.Limits{BlockSize: 512, ReadOnly: true, MaxUnmap: size}}
	noTrim := &Info{Size: size, Limits: blk.Limits{BlockSize: 512}}
	for _, c := range []struct {
		name       string
		q          proto.Request
		i          *Info
		structured bool
		op         blk.Op
		status     blk.Status
	}{
		{"read", proto.Request{Cmd: proto.CmdRead, Len: 512}, plain, false, blk.Read, blk.OK},
		{"read of 32 MiB", proto.Request{Cmd: proto.CmdRead, Len: 32 << 20}, plain, false, blk.Read, blk.OK},
		{"read of 33 MiB", proto.Request{Cmd: proto.CmdRead, Len: 33 << 20}, plain, false, blk.Read, blk.Invalid},
		{"read of 4 GiB - 1", proto.Request{Cmd: proto.CmdRead, Len: 1<<32 - 1}, plain, false, blk.Read, blk.Invalid},
		{"unfragmented read of 33 MiB", proto.Request{Cmd: proto.CmdRead, Flags: proto.CmdFlagDF, Len: 33 << 20}, plain, true, blk.Read, blk.Overflow},
		{"DF that was not offered", proto.Request{Cmd: proto.CmdRead, Flags: proto.CmdFlagDF, Len: 512}, plain, false, blk.Read, blk.Invalid},
		{"read with FUA", proto.Request{Cmd: proto.CmdRead, Flags: proto.CmdFlagFUA, Len: 512}, plain, false, blk.Read, blk.OK},
		{"read past the end", proto.Request{Cmd: proto.CmdRead, Off: size - 512, Len: 1024}, plain, false, blk.Read, blk.Invalid},
		{"read that wraps around", proto.Request{Cmd: proto.CmdRead, Off: 1<<64 - 512, Len: 1024}, plain, false, blk.Read, blk.Invalid},
		{"write past the end", proto.Request{Cmd: proto.CmdWrite, Off: size, Len: 512}, plain, false, 0, blk.NoSpace},
		{"zeroes past the end", proto.Request{Cmd: proto.CmdWriteZeroes, Off: size, Len: 512}, plain, false, 0, blk.NoSpace},
		{"trim past the end", proto.Request{Cmd: proto.CmdTrim, Off: size, Len: 512}, plain, false, 0, blk.Invalid},
		{"cache past the end", proto.Request{Cmd: proto.CmdCache, Off: size, Len: 512}, plain, false, 0, blk.Invalid},
		{"cache", proto.Request{Cmd: proto.CmdCache, Len: 1<<30 - 5}, plain, false, 0, blk.OK},
		{"write to a read-only device", proto.Request{Cmd: proto.CmdWrite, Len: 512}, readOnly, false, 0, blk.NotPermitted},
		{"trim of a read-only device", proto.Request{Cmd: proto.CmdTrim, Len: 512}, readOnly, false, 0, blk.NotPermitted},
		{"flush of a read-only device", proto.Request{Cmd: proto.CmdFlush}, readOnly, false, blk.Flush, blk.OK},
		{"flush with a length", proto.Request{Cmd: proto.CmdFlush, Len: 1}, plain, false, 0, blk.Invalid},
		{"flush with FUA", proto.Request{Cmd: proto.CmdFlush, Flags: proto.CmdFlagFUA}, plain, false, blk.Flush, blk.OK},
		{"read of part of a block", proto.Request{Cmd: proto.CmdRead, Off: 512, Len: 512}, info4k(size), false, blk.Read, blk.Invalid},
		{"write of part of a block", proto.Request{Cmd: proto.CmdWrite, Off: 1024, Len: 1024}, info4k(size), false, 0, blk.Invalid},
		{"zeroes for part of a block", proto.Request{Cmd: proto.CmdWriteZeroes, Off: 512, Len: 512}, info4k(size), false, 0, blk.Invalid},
		{"trim inside a block", proto.Request{Cmd: proto.CmdTrim, Len: 1}, info4k(size), false, 0, blk.OK},
		{"trim where it is not supported", proto.Request{Cmd: proto.CmdTrim, Len: 512}, noTrim, false, 0, blk.OK},
		{"trim of nearly 4 GiB on a smaller device", proto.Request{Cmd: proto.CmdTrim, Len: 0xFFFFF000}, plain, false, 0, blk.Invalid},
		{"fast zero, never offered", proto.Request{Cmd: proto.CmdWriteZeroes, Flags: proto.CmdFlagFastZero, Len: 512}, plain, false, 0, blk.Invalid},
		{"no hole on a write", proto.Request{Cmd: proto.CmdWrite, Flags: proto.CmdFlagNoHole, Len: 512}, plain, false, 0, blk.Invalid},
		{"empty read", proto.Request{Cmd: proto.CmdRead}, plain, false, blk.Read, blk.OK},
		{"empty write at the end", proto.Request{Cmd: proto.CmdWrite, Off: size}, plain, false, 0, blk.OK},
		{"empty zeroes", proto.Request{Cmd: proto.CmdWriteZeroes}, plain, false, 0, blk.OK},
		{"empty read beyond the end", proto.Request{Cmd: proto.CmdRead, Off: size + 512}, plain, false, blk.Read, blk.Invalid},
		{"block status without a context", proto.Request{Cmd: proto.CmdBlockStatus, Len: 512}, plain, true, 0, blk.Invalid},
		{"resize", proto.Request{Cmd: proto.CmdResize, Len: 512}, plain, false, 0, blk.Invalid},
		{"command 99", proto.Request{Cmd: 99}, plain, false, 0, blk.Invalid},
	} {
		got := check(&c.q, c.i, c.structured)
		if got.Op != c.op || got.Status != c.status {
			t.Errorf("%s: op %v status %v, want %v %v", c.name, got.Op, got.Status, c.op, c.status)
		}
	}
}

func TestEveryUnknownCommandFlagIsRefused(t *testing.T) {
	i := info4k(1 << 20)
	for bit := 5; bit < 16; bit++ {
		for cmd := proto.CmdRead; cmd <= proto.CmdWriteZeroes; cmd++ {
			q := proto.Request{Cmd: cmd, Flags: 1 << bit, Len: 4096}
			if got := check(&q, i, true); got.Status != blk.Invalid {
				t.Errorf("command %d with flag %#x: %v", cmd, q.Flags, got.Status)
			}
		}
	}
}

func TestTrimShrinksToTheBlocksInsideIt(t *testing.T) {
	q := proto.Request{Cmd: proto.CmdTrim, Off: 1000, Len: 20000}
	got := check(&q, info4k(1<<20), false)
	if got.Op != blk.Trim || got.Off != 4096 || got.Len != 16384 {
		t.Fatalf("got %+v", got)
	}
}

func TestFlagsReachTheLane(t *testing.T) {
	i := info4k(1 << 20)
	q := proto.Request{Cmd: proto.CmdWriteZeroes, Flags: proto.CmdFlagNoHole | proto.CmdFlagFUA, Len: 4096}
	if got := check(&q, i, false); got.Flags != blk.NoUnmap|blk.FUA {
		t.Errorf("zeroes: flags %b", got.Flags)
	}
	q = proto.Request{Cmd: proto.CmdWrite, Flags: proto.CmdFlagFUA, Len: 4096}
	if got := check(&q, i, false); got.Flags != blk.FUA {
		t.Errorf("write: flags %b", got.Flags)
	}
}

func TestOnlyWholeBlocksAreAdvertised(t *testing.T) {
	i := info4k(10*4096 + 512)
	if got := i.size(); got != 10*4096 {
		t.Fatalf("size %d", got)
	}
}

// FuzzCheck compares with arithmetic that cannot overflow: what reaches a lane
// lies inside the device and is made of whole blocks.
func FuzzCheck(f *testing.F) {
	f.Add(uint16(0), uint16(0), uint64(0), uint32(4096), uint64(1<<20))
	f.Add(uint16(4), uint16(1), uint64(1<<63-1), uint32(0xffffffff), uint64(1<<62))
	f.Fuzz(func(t *testing.T, cmd, flags uint16, off uint64, n uint32, size uint64) {
		i := info4k(size >> 1)
		q := proto.Request{Cmd: proto.Command(cmd), Flags: flags, Off: off, Len: n}
		got := check(&q, i, flags&1 != 0)
		if got.idle() || got.Op == blk.Flush {
			return
		}
		end := new(big.Int).Add(new(big.Int).SetUint64(got.Off), big.NewInt(int64(got.Len)))
		if end.Cmp(new(big.Int).SetUint64(i.Size)) > 0 || got.Off%4096 != 0 || got.Len%4096 != 0 || got.Len == 0 {
			t.Fatalf("%+v of a device of %d reaches the lane as %+v", q, i.Size, got)
		}
		if got.Off < off || got.Off+uint64(got.Len) > off+uint64(n) {
			t.Fatalf("%+v grew to %+v", q, got)
		}
	})
}
