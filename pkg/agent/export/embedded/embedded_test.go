package embedded

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
	"github.com/csi-mpath/csi-mpath/pkg/secret"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/test/node"
)

const mib = 1 << 20

func TestAVolumeIsWrittenAndReadAtBothPortalsByWhoMay(t *testing.T) {
	transports(t, func(t *testing.T, tr backend.Transport) {
		r := newRig(t, tr)
		e, a := r.volume(1, 4*mib), r.access(1, 1)
		if !r.ensure(e, a) {
			t.Error("a new export changed nothing")
		}
		for portal := range r.x.Portals() {
			p := r.dial(e, a, portal)
			if p.WWID != export.WWID(tr, e.Identity) || p.Size != e.Size {
				t.Errorf("%s of %d bytes", p.WWID, p.Size)
			}
			if !p.Limits.WriteCache || p.Limits.ReadOnly {
				t.Errorf("%+v", p.Limits)
			}
			roundTrip(t, p, int64(portal)*mib, byte(portal))
		}
		if r.ensure(e, a) {
			t.Error("the same again changed something")
		}
	})
}

func TestNobodyInAccessIsNobodyAtAll(t *testing.T) {
	transports(t, func(t *testing.T, tr backend.Transport) {
		r := newRig(t, tr)
		e := r.volume(1, mib)
		r.ensure(e)
		r.refused(e, r.access(1, 1))
		r.ensure(e, r.access(2, 1))
		r.refused(e, r.access(1, 1))
		r.dial(e, r.access(2, 1), 0)
	})
}

func TestEachInitiatorHasItsOwnSecret(t *testing.T) {
	dhchap := func(b byte) secret.Text { return auth.FormatSecret(auth.SHA256, bytes.Repeat([]byte{b}, 32)) }
	secrets := []backend.Auth{
		{CHAP: backend.CHAP{User: "one", Secret: "the first secret", MutualUser: "t", MutualSecret: "the target's own"},
			DHCHAP: backend.DHCHAP{Host: dhchap(1), Controller: dhchap(2)}},
		{CHAP: backend.CHAP{User: "two", Secret: "the second secret"}, DHCHAP: backend.DHCHAP{Host: dhchap(3)}},
	}
	transports(t, func(t *testing.T, tr backend.Transport) {
		r := newRig(t, tr)
		e, a, b, open := r.volume(1, mib), r.access(1, 1), r.access(2, 1), r.access(3, 1)
		a.Auth, b.Auth = secrets[0], secrets[1]
		r.ensure(e, a, b, open)
		for _, ok := range []export.Access{a, b, open} {
			roundTrip(t, r.dial(e, ok, 0), 0, 1)
		}
		for _, wrong := range []backend.Auth{secrets[1], {}} {
			other := a
			other.Auth = wrong
			r.refused(e, other)
		}
		p := r.dial(e, a, 1)
		a.Auth = secrets[1]
		r.ensure(e, a, b, open)
		roundTrip(t, p, 0, 2) // new secrets are for logins to come
		r.dial(e, a, 0)
	})
}

func TestAReadOnlyInitiatorReadsBesideOneThatWrites(t *testing.T) {
	transports(t, func(t *testing.T, tr backend.Transport) {
		r := newRig(t, tr)
		e, w, ro := r.volume(1, mib), r.access(1, 1), r.access(2, 1)
		ro.ReadOnly = true
		r.ensure(e, w, ro)
		writer, reader := r.dial(e, w, 0), r.dial(e, ro, 0)
		if !reader.Limits.ReadOnly {
			t.Error("it is not told")
		}
		want := pattern(8192, 9)
		if err := writer.Write(want, 0); err != nil {
			t.Fatal(err)
		}
		for _, c := range []*blk.Command{{Op: blk.Write, Len: 4096, Buf: make([]byte, 4096)}, {Op: blk.Trim, Len: 4096}, {Op: blk.WriteZeroes, Len: 4096}} {
			var st *node.StatusError
			if err := reader.Do(c); !errors.As(err, &st) || st.Verdict.Class != blk.TargetError {
				t.Errorf("%v: %v", c.Op, err)
			}
		}
		got := make([]byte, len(want))
		if err := reader.Read(got, 0); err != nil || string(got) != string(want) {
			t.Errorf("%v, or the bytes differ", err)
		}
	})
}

func TestAnInitiatorThatMayOnlyReadFromNowOnLosesItsSession(t *testing.T) {
	transports(t, func(t *testing.T, tr backend.Transport) {
		r := newRig(t, tr)
		e, a, b := r.volume(1, mib), r.access(1, 1), r.access(2, 1)
		r.ensure(e, a, b)
		p, other := r.dial(e, a, 0), r.dial(e, b, 0)
		a.ReadOnly = true
		r.ensure(e, a, b)
		<-p.Done()
		roundTrip(t, other, 0, 1)
		if !r.dial(e, a, 0).Limits.ReadOnly {
			t.Error("it may write")
		}
	})
}

func TestWhoIsRevokedIsOutAndNobodyElseNotices(t *testing.T) {
	transports(t, func(t *testing.T, tr backend.Transport) {
		r := newRig(t, tr)
		e, a, b := r.volume(1, mib), r.access(1, 1), r.access(2, 1)
		r.ensure(e, a, b)
		p, other := r.dial(e, a, 0), r.dial(e, b, 0)
		if err := r.x.Revoke(t.Context(), e.Volume, e.Identity, []string{b.Initiator}); err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		r.refused(e, a)
		roundTrip(t, other, 0, 1)
		e.Access = []export.Access{b}
		if changed, err := r.x.Ensure(t.Context(), e); changed || err != nil {
			t.Errorf("changed %t, %v: there was more to do", changed, err)
		}
	})
}

func TestAHostIsKnownByItsIdentifierToo(t *testing.T) {
	r := newRig(t, backend.NVMe)
	e, a := r.volume(1, mib), r.access(1, 1)
	r.ensure(e, a)
	p := r.dial(e, a, 0)
	thief := a
	thief.HostID = r.access(2, 1).HostID
	r.refused(e, thief)
	r.ensure(e, thief)
	<-p.Done()
	r.refused(e, a)
	r.dial(e, thief, 0)
}

func TestTheCacheIsWhatItIs(t *testing.T) {
	transports(t, func(t *testing.T, tr backend.Transport) {
		r := newRig(t, tr)
		of := r.gate()
		e, a := r.volume(1, mib), r.access(1, 1)
		e.Cache = false
		r.ensure(e, a)
		p := r.dial(e, a, 0)
		if p.Limits.WriteCache {
			t.Error("a durable store has a cache")
		}
		if err := p.Write(pattern(4096, 1), 0); err != nil {
			t.Fatal(err)
		}
		of(e.Identity).durable(t)
		e.Cache = true
		if !r.ensure(e, a) {
			t.Error("nothing changed")
		}
		<-p.Done()
		if !r.dial(e, a, 0).Limits.WriteCache {
			t.Error("the cache is not told of")
		}
	})
}

func TestAGrownVolumeIsToldToInitiators(t *testing.T) {
	transports(t, func(t *testing.T, tr backend.Transport) {
		r := newRig(t, tr)
		e, a := r.volume(1, mib), r.access(1, 1)
		r.ensure(e, a)
		p := r.dial(e, a, 0)
		e.Size, e.Access = 2*mib, []export.Access{a}
		if err := r.x.Resize(within(t), e); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("before the store grew: %v", err)
		}
		if err := os.Truncate(e.Backing.Path, e.Size); err != nil {
			t.Fatal(err)
		}
		if err := r.x.Resize(within(t), e); err != nil {
			t.Fatal(err)
		}
		if tr == backend.ISCSI {
			_ = p.Read(make([]byte, 512), 0) // it tells with the next answer
		}
		if got := <-p.Told(); got&(blk.CapacityChanged|blk.IdentityChanged) == 0 {
			t.Errorf("evidence %b", got)
		}
		q := r.dial(e, a, 1)
		if q.Size != e.Size {
			t.Errorf("%d bytes", q.Size)
		}
		roundTrip(t, q, e.Size-64<<10, 3)
		e.Size = mib
		if err := r.x.Resize(within(t), e); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("shrunk: %v", err)
		}
	})
}

func TestAFullStoreIsACleanError(t *testing.T) {
	transports(t, func(t *testing.T, tr backend.Transport) {
		r := newRig(t, tr)
		of := r.gate()
		e, a := r.volume(1, mib), r.access(1, 1)
		r.ensure(e, a)
		g := of(e.Identity)
		g.mu.Lock()
		g.fail = target.ErrNoSpace
		g.mu.Unlock()
		var st *node.StatusError
		if err := r.dial(e, a, 0).Write(make([]byte, 4096), 0); !errors.As(err, &st) || st.Verdict.Status != blk.NoSpace {
			t.Errorf("%v", err)
		}
	})
}

func TestWhatIsServedIsListed(t *testing.T) {
	transports(t, func(t *testing.T, tr backend.Transport) {
		r := newRig(t, tr)
		e, a := r.volume(1, mib), r.access(1, 1)
		r.ensure(e, a)
		p := r.dial(e, a, 1)
		all, _ := r.x.Exported(within(t))
		if len(all) != 1 || all[0].Identity != e.Identity || all[0].Target != export.Target(tr, e.Identity) ||
			len(all[0].Initiators) != 1 || all[0].Initiators[0] != a.Initiator {
			t.Errorf("%+v", all)
		}
		s, _ := r.x.Sessions(within(t))
		if want := (export.Session{Identity: e.Identity, Initiator: a.Initiator, Portal: r.x.Portals()[1].Address}); len(s) != 1 || s[0] != want {
			t.Errorf("%+v", s)
		}
		if err := r.x.Remove(within(t), e.Volume, e.Identity); err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		r.refused(e, a)
		all, _ = r.x.Exported(within(t))
		s, _ = r.x.Sessions(within(t))
		if len(all)+len(s) != 0 {
			t.Errorf("%v %v", all, s)
		}
		if err := r.x.Remove(within(t), e.Volume, e.Identity); err != nil {
			t.Error(err)
		}
	})
}

func TestWhatCannotBeServedIsRefusedAndNotServed(t *testing.T) {
	transports(t, func(t *testing.T, tr backend.Transport) {
		r := newRig(t, tr)
		for name, change := range map[string]func(e *export.Export){
			"identity":   func(e *export.Export) { e.Identity = "../" + e.Identity[3:] },
			"odd size":   func(e *export.Export) { e.Size-- },
			"no size":    func(e *export.Export) { e.Size = 0 },
			"too large":  func(e *export.Export) { e.Size *= 2 },
			"no file":    func(e *export.Export) { e.Backing.Path += "x" },
			"twice":      func(e *export.Export) { e.Access = append(e.Access, e.Access[0]) },
			"no name":    func(e *export.Export) { e.Access[0].Initiator = "" },
			"a crowd":    func(e *export.Export) { e.Access = make([]export.Access, maxAccess+1) },
			"bad secret": func(e *export.Export) { e.Access[0].Auth.CHAP.Secret, e.Access[0].Auth.DHCHAP.Host = "short", "short" },
		} {
			e := r.volume(1, mib)
			e.Access = []export.Access{r.access(1, 1)}
			change(&e)
			if _, err := r.x.Ensure(within(t), e); err == nil {
				t.Errorf("%s: served", name)
			}
		}
		if all, _ := r.x.Exported(within(t)); len(all) != 0 {
			t.Errorf("%+v", all)
		}
	})
}

func TestPortalsThatNobodyCouldReachAreRefused(t *testing.T) {
	for name, c := range map[string]Config{
		"none":      {Transport: backend.ISCSI},
		"transport": {Transport: "fc", Portals: []Portal{{Listen: "127.0.0.1:0"}}},
		"name":      {Transport: backend.ISCSI, Portals: []Portal{{Listen: "localhost:0"}}},
		"every":     {Transport: backend.NVMe, Portals: []Portal{{Listen: "0.0.0.0:0"}}},
		"advertise": {Transport: backend.NVMe, Portals: []Portal{{Listen: "127.0.0.1:0", Advertise: "here"}}},
	} {
		if x, err := New(c); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
			if err == nil {
				_ = x.Close()
			}
		}
	}
}

func TestAnAddressThatIsTakenIsWaitedFor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	made := make(chan error)
	go func() {
		x, err := New(Config{Transport: backend.ISCSI, Portals: []Portal{{Listen: l.Addr().String()}}})
		if err == nil {
			err = x.Close()
		}
		made <- err
	}()
	_ = l.Close()
	if err := <-made; err != nil {
		t.Error(err)
	}
}

func TestAfterCloseNothingIsServed(t *testing.T) {
	transports(t, func(t *testing.T, tr backend.Transport) {
		r := newRig(t, tr)
		e, a := r.volume(1, mib), r.access(1, 1)
		r.ensure(e, a)
		p := r.dial(e, a, 0)
		if err := r.x.Close(); err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		r.refused(e, a)
		e.Identity = export.Serial(e.Identity) + e.Identity[:12]
		if _, err := r.x.Ensure(context.Background(), e); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%v", err)
		}
	})
}
