package device

import (
	"context"
	"net"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp"
	"github.com/csi-mpath/csi-mpath/pkg/poll"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/target"
)

func TestALoginIsNoProofForSessionsThatWereElsewhereBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &iscsiPath{volume: ISCSI{FenceTimeout: 15 * time.Second}}
		a, b := group{known: true, address: "a:1", tpgt: 1}, group{known: true, address: "b:1", tpgt: 2}
		for i, step := range []struct {
			at    group
			proof bool
		}{{a, true}, {a, true}, {b, false}, {b, false}} { // the second at b leaves a's tasks alone
			if got := p.settle(step.at); got != step.proof {
				t.Errorf("step %d: proof %v", i, got)
			}
		}
		if err := p.ProveDead(t.Context()); err == nil || err == datapath.ErrNoProof {
			t.Errorf("%v", err)
		}
		time.Sleep(16 * time.Second) // the clock has ended what was at a
		if !p.settle(b) {
			t.Error("no proof although all that is left was there")
		}
	})
}

type evidenceSink struct {
	seen blk.Evidence
	gone chan struct{}
}

func (*evidenceSink) Complete(*blk.Command)      {}
func (*evidenceSink) BatchEnd(uint64)            {}
func (s *evidenceSink) Evidence(e blk.Evidence)  { s.seen |= e }
func (s *evidenceSink) Lost(*blk.Command, error) { close(s.gone) }

func TestALostCacheIsPassedOnWhenARefreshIsToldOfIt(t *testing.T) {
	srv, err := target.New(target.Config{LUNs: []target.LUN{{Number: 1, Store: target.NewRAM(1 << 20)}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = srv.Close() }()
	portal, err := srv.ListenPortal("127.0.0.1:0", target.PortalConfig{TPGT: 1})
	if err != nil {
		t.Fatal(err)
	}
	p := &iscsiPath{way: way{cfg: &Config{QueueDepth: 1}}, volume: ISCSI{LUN: 1 << 48}, login: iscsi.Config{Portal: portal.Addr(),
		InitiatorName: "iqn.2026-01.test:host", TargetName: srv.Name()}}
	sink := &evidenceSink{gone: make(chan struct{})}
	q, err := p.Connect(t.Context(), sink)
	if err != nil {
		t.Fatal(err)
	}
	sink.seen = 0
	srv.Attention(portal.Number(), 1, scsi.Sense{Key: scsi.KeyUnitAttention, ASC: 0x29, ASCQ: 1})
	if _, err := q.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	q.Abort(nil)
	<-sink.gone
	if sink.seen&blk.CacheLost == 0 {
		t.Fatal("swallowed (I4)")
	}
}

func TestPollingChangedDuringALoginIsThatSessionsToo(t *testing.T) {
	srv, err := target.New(target.Config{LUNs: []target.LUN{{Number: 1, Store: target.NewRAM(1 << 20)}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = srv.Close() }()
	portal, err := srv.ListenPortal("127.0.0.1:0", target.PortalConfig{TPGT: 1})
	if err != nil {
		t.Fatal(err)
	}
	const want = poll.Polling(50 * time.Microsecond)
	var p *iscsiPath
	p = &iscsiPath{way: way{cfg: &Config{QueueDepth: 1}}, volume: ISCSI{LUN: 1 << 48}, login: iscsi.Config{Portal: portal.Addr(),
		InitiatorName: "iqn.2026-01.test:host", TargetName: srv.Name(),
		Dial: func(_ context.Context, at string) (net.Conn, error) {
			p.setPolling(want)
			return net.Dial("tcp", at)
		}}}
	sink := &evidenceSink{gone: make(chan struct{})}
	q, err := p.Connect(t.Context(), sink)
	if err != nil {
		t.Fatal(err)
	}
	if got := q.(*iscsiQueue).s.Polling(); got != want {
		t.Errorf("polling %v, want %v", time.Duration(got), time.Duration(want))
	}
	q.Abort(nil)
	<-sink.gone
}

func TestChangedTimeoutsCountFromTheNextLogin(t *testing.T) {
	change := login{source: "127.0.0.2", pathTimeout: 20 * time.Second, commandTimeout: 40 * time.Second, keepAlive: 7 * time.Second}
	i, n := &iscsiPath{}, &nvmePath{}
	i.relogin(change)
	n.relogin(change)
	was := iscsi.Config{Source: "127.0.0.2", PathTimeout: 20 * time.Second, CommandTimeout: 40 * time.Second,
		ConnectTimeout: 20 * time.Second, LoginTimeout: 20 * time.Second}
	if got := i.sessionConfig(); !reflect.DeepEqual(got, was) {
		t.Errorf("iSCSI: got %+v, want %+v", got, was)
	}
	want := nvmetcp.Config{Source: was.Source, PathTimeout: was.PathTimeout, CommandTimeout: was.CommandTimeout,
		ConnectTimeout: was.ConnectTimeout, LoginTimeout: was.LoginTimeout, KeepAlive: 7 * time.Second}
	if got := n.config(); !reflect.DeepEqual(got, want) {
		t.Errorf("NVMe: got %+v, want %+v", got, want)
	}
}

// A controller lives as long as its own keep alive timeout says (I3).
func TestAChangedKeepAliveTimeoutShortensNoFence(t *testing.T) {
	p := &nvmePath{controller: nvmetcp.Config{KeepAlive: 30 * time.Second}}
	if err := p.note(p.controller.FenceBound(), "a:1"); err != nil {
		t.Fatal(err)
	}
	was := p.FenceBound()
	if p.relogin(login{keepAlive: time.Second}); p.FenceBound() != was || was < time.Minute {
		t.Errorf("the fence is %v, was %v", p.FenceBound(), was)
	}
}
