package attach_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/volume"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

// shared stages unit 1 as a raw volume that other nodes have too.
func (r *rig) shared(host string) volume.StageRequest {
	r.Helper()
	q := r.rawRequest(1, func(a *attrs.Attachment) {
		a.Initiator = strings.TrimSuffix(a.Initiator, "host:e1") + host
		a.Content = "written"
	})
	q.Exclusive = false
	r.must(r.node.Stage(r.Context(), q))
	r.allPaths("v1")
	return q
}

// grow makes unit 1 larger.
func (r *rig) grow(to uint64) {
	r.Helper()
	if r.nvme != nil {
		r.must(r.nvme.Grow(1, to))
	} else {
		r.must(r.iscsi.Grow(1, to))
	}
}

// Each node of a shared raw volume sees by itself that it grew, from what the target
// says, while it is used.
func TestEachNodeOfARawVolumeSeesGrowthByItself(t *testing.T) {
	overBoth(t, func(one *rig) {
		two := one.another()
		for r, host := range map[*rig]string{one: "a", two: "b"} {
			r.shared(host)
		}
		one.grow(2 * size)
		for _, r := range []*rig{one, two} {
			d := r.machine.Disk("v1")
			r.until("growth seen", func() bool {
				r.get(d, 0, 0) // meets the target's attention
				return d.Size() == 2*size
			})
			r.put(d, size, 'g')
			r.put(d, size, 0)
		}
	})
}

// Two nodes write the same place in turns, with a flush after each: nothing is
// cached on either.
func TestTwoWritersOfARawVolumeSeeEachOther(t *testing.T) {
	overBoth(t, func(one *rig) {
		two := one.another()
		one.shared("a")
		two.shared("b")
		nodes := []*rig{one, two}
		for i := range 20 {
			writer, reader := nodes[i%2], nodes[1-i%2]
			writer.put(writer.machine.Disk("v1"), 0, byte('a'+i))
			writer.flush("v1")
			reader.get(reader.machine.Disk("v1"), 0, byte('a'+i))
		}
	})
}

func (r *rig) flush(name string) {
	r.Helper()
	f, ok := r.machine.Disk(name).(interface{ Flush() error })
	if !ok {
		r.Fatal("it cannot be flushed")
	}
	r.must(f.Flush())
}

// A portal that swallows everything, in each way there is, and the volume is staged
// before anybody has given that portal up.
func TestAStageDoesNotWaitForPortalsThatSwallow(t *testing.T) {
	overBoth(t, func(r *rig) {
		for what, address := range map[string]string{"connections": r.crowded(), "bytes": r.silence().address} {
			q := r.rawRequest(1, func(a *attrs.Attachment) {
				a.Portals = append(a.Portals[:1], a.Portals[0])
				a.Portals[0].Address = address // the first that is called
				a.Tunables["pathTimeout"] = "60s"
			})
			r.must(r.node.Stage(r.Context(), q))
			if m := r.messageOf("v1"); m != "1 of 2 paths work: "+address+" is connecting" {
				r.Errorf("one that swallows %s: %q", what, m)
			}
			r.unstageRaw(1)
		}
	})
}

// crowded is the address of a listener that takes no connection any more: the
// system drops who comes, as a lost network does.
func (r *rig) crowded() string {
	r.Helper()
	l := listenWithoutRoom(r.T)
	for range 8 {
		ctx, cancel := context.WithTimeout(r.Context(), 50*time.Millisecond)
		c, err := new(net.Dialer).DialContext(ctx, "tcp", l)
		cancel()
		if err == nil {
			r.Cleanup(func() { _ = c.Close() })
		}
	}
	return l
}

// Claim 5: two hundred calls for a volume that answers nothing.
func TestStatsOfAVolumeWithoutPathsAreQuick(t *testing.T) {
	overBoth(t, func(r *rig) {
		q := r.request(nil)
		r.must(r.node.Stage(r.Context(), q))
		r.allPaths("vol")
		if _, err := r.node.Stats(r.Context(), "vol", q.Staging); err != nil {
			r.Fatal(err)
		}
		r.kill()
		r.noPath("vol")
		var wg sync.WaitGroup
		begin := time.Now()
		for range 200 {
			wg.Go(func() {
				s, err := r.node.Stats(r.Context(), "vol", q.Staging)
				if err != nil || !s.Abnormal || s.Usage == nil || !strings.Contains(s.Message, r.portals[0].Addr()) {
					r.Errorf("%+v, %v", s, err)
				}
			})
		}
		wg.Wait() // with no path, which nothing here brings back
		r.Logf("200 calls in %v", time.Since(begin))
		r.revive()
		r.allPaths("vol")
		r.unstage()
	})
}

// A name is looked up for each login: the portal moves, and its name with it.
func TestANameIsLookedUpForEachLogin(t *testing.T) {
	overBoth(t, func(r *rig) {
		r.kill()
		first, err := r.base.ListenPortal("127.0.0.2:0", target.PortalConfig{TPGT: 1, Group: 1})
		r.must(err)
		_, port, err := net.SplitHostPort(first.Addr())
		r.must(err)
		names := serveNames(r.T)
		names.is("127.0.0.2", "::1") // there is nobody at the other address
		q := r.rawRequest(1, func(a *attrs.Attachment) {
			a.Portals = a.Portals[:1]
			a.Portals[0].Address = net.JoinHostPort("storage.test", port)
		})
		r.must(r.node.Stage(r.Context(), q))
		first.Kill()
		r.noPath("v1")
		_, err = r.base.ListenPortal(net.JoinHostPort("127.0.0.3", port), target.PortalConfig{TPGT: 1, Group: 1})
		r.must(err)
		names.is("127.0.0.3")
		r.until("the path back", func() bool { return r.messageOf("v1") == "1 paths work" })
		r.put(r.machine.Disk("v1"), 0, 'n')
		r.unstageRaw(1)
	})
}

// Identities are compared byte by byte, whatever is in them.
func TestSerialsAreWhateverBytesTheyAre(t *testing.T) {
	r := newRig(t, &target.Config{})
	var every []byte
	for b := byte(' '); b <= '~'; b++ {
		every = append(every, b)
	}
	for _, serial := range []string{string(every), "$HOME`id`%s", "  spaces  ", "ends\x00", "ends\x00\x00", `back\slash"quote`} {
		for i := range r.portals {
			d := target.Device{}
			d.NAA, d.Serial = "6000000000000000000000000000000a", serial
			r.must(r.iscsi.SetDevice(r.portals[i].Number(), 1, d))
		}
		r.must(r.node.Stage(t.Context(), r.rawRequest(1, nil)))
		r.allPaths("v1")
		r.unstageRaw(1)
	}
}
