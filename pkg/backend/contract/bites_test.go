package contract

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/backend/memory"
	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
)

// judge is a test that may fail without failing the one it is part of.
type judge struct {
	testing.TB
	complaints []string
	cleanups   []func()
}

func (j *judge) Helper()          {}
func (j *judge) Failed() bool     { return len(j.complaints) > 0 }
func (j *judge) Cleanup(f func()) { j.cleanups = append(j.cleanups, f) }
func (j *judge) Error(a ...any)   { j.complaints = append(j.complaints, fmt.Sprint(a...)) }
func (j *judge) Errorf(format string, a ...any) {
	j.complaints = append(j.complaints, fmt.Sprintf(format, a...))
}
func (j *judge) Fatalf(format string, a ...any) {
	j.Errorf(format, a...)
	runtime.Goexit()
}

// verdict runs one check.
func verdict(t *testing.T, name string, s Subject) []string {
	t.Helper()
	j := &judge{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, f := range j.cleanups {
				f()
			}
		}()
		for _, c := range checks {
			if c.name == name {
				c.run(try(j, s))
				return
			}
		}
		j.Errorf("no check is called %s", name)
	}()
	<-done
	return j.complaints
}

// sick is the memory twin with one thing wrong.
type sick struct {
	backend.Backend
	create    func(ctx context.Context, b backend.Backend, r backend.CreateVolume) (backend.Volume, error)
	remove    func(ctx context.Context, b backend.Backend, id backend.ID) error
	expand    func(ctx context.Context, b backend.Backend, id backend.ID, size backend.Size) (backend.Volume, error)
	publish   func(ctx context.Context, b backend.Backend, r backend.Publish) (backend.Connection, error)
	unpublish func(ctx context.Context, b backend.Backend, id backend.ID, node string) error
	fence     func(ctx context.Context, b backend.Backend, node string) error
	list      func(ctx context.Context, b backend.Backend, p backend.Page) ([]backend.Volume, string, error)
}

func (s sick) CreateVolume(ctx context.Context, r backend.CreateVolume) (backend.Volume, error) {
	if s.create == nil {
		return s.Backend.CreateVolume(ctx, r)
	}
	return s.create(ctx, s.Backend, r)
}

func (s sick) DeleteVolume(ctx context.Context, id backend.ID) error {
	if s.remove == nil {
		return s.Backend.DeleteVolume(ctx, id)
	}
	return s.remove(ctx, s.Backend, id)
}

func (s sick) ExpandVolume(ctx context.Context, id backend.ID, size backend.Size) (backend.Volume, error) {
	if s.expand == nil {
		return s.Backend.ExpandVolume(ctx, id, size)
	}
	return s.expand(ctx, s.Backend, id, size)
}

func (s sick) Publish(ctx context.Context, r backend.Publish) (backend.Connection, error) {
	if s.publish == nil {
		return s.Backend.Publish(ctx, r)
	}
	return s.publish(ctx, s.Backend, r)
}

func (s sick) Unpublish(ctx context.Context, id backend.ID, node string) error {
	if s.unpublish == nil {
		return s.Backend.Unpublish(ctx, id, node)
	}
	return s.unpublish(ctx, s.Backend, id, node)
}

func (s sick) Fence(ctx context.Context, node string) error {
	if s.fence == nil {
		return s.Backend.Fence(ctx, node)
	}
	return s.fence(ctx, s.Backend, node)
}

func (s sick) Volumes(ctx context.Context, p backend.Page) ([]backend.Volume, string, error) {
	if s.list == nil {
		return s.Backend.Volumes(ctx, p)
	}
	return s.list(ctx, s.Backend, p)
}

// healthy is the memory twin and one of another tenant.
func healthy() Subject {
	const mib = 1 << 20
	s := memory.New(memory.Config{
		Pools:   []backend.Pool{{Name: "p", Transports: []backend.Transport{backend.ISCSI, backend.NVMe}, Snapshots: true, SnapshotsInUse: true, Step: mib, Min: mib, Max: 1 << 40}},
		Portals: map[backend.Transport][]backend.Portal{backend.ISCSI: {{Address: "127.0.0.1:3260"}}},
	})
	return Subject{Backend: s.For("a"), Other: s.For("b"), Tenant: "a", Pool: "p"}
}

func TestTheContractFindsWhatIsWrong(t *testing.T) {
	for check, s := range map[string]sick{
		"ARepeatedCreationFindsTheVolume": {create: func(ctx context.Context, b backend.Backend, r backend.CreateVolume) (backend.Volume, error) {
			r.Size.Limit = 0
			return b.CreateVolume(ctx, r)
		}},
		"SizesAreRoundedUpAndBounded": {create: func(ctx context.Context, b backend.Backend, r backend.CreateVolume) (backend.Volume, error) {
			r.Size.Required = max(r.Size.Required, 0)
			return b.CreateVolume(ctx, r)
		}},
		"ADeletedVolumeIsGone": {remove: func(ctx context.Context, b backend.Backend, id backend.ID) error {
			if _, err := b.Volume(ctx, id); err != nil {
				return err
			}
			return b.DeleteVolume(ctx, id)
		}},
		"AnyTextIsAName": {create: func(ctx context.Context, b backend.Backend, r backend.CreateVolume) (backend.Volume, error) {
			if len(r.Name) > 63 {
				r.Name = r.Name[:63]
			}
			return b.CreateVolume(ctx, r)
		}},
		"ExpansionIsUpToTheSizeAndNeverBack": {expand: func(ctx context.Context, b backend.Backend, id backend.ID, size backend.Size) (backend.Volume, error) {
			return b.ExpandVolume(ctx, id, backend.Size{Required: size.Required})
		}},
		"APublishedVolumeIsNotDeleted": {remove: func(ctx context.Context, b backend.Backend, id backend.ID) error {
			return errors.Join(b.Unpublish(ctx, id, ""), b.DeleteVolume(ctx, id))
		}},
		"AnotherPublicationIsAnotherEpoch": {unpublish: func(context.Context, backend.Backend, backend.ID, string) error { return nil }},
		"ARepeatedPublishIsTheSamePublication": {publish: func(ctx context.Context, b backend.Backend, r backend.Publish) (backend.Connection, error) {
			_ = b.Unpublish(ctx, r.Volume, r.Node)
			return b.Publish(ctx, r)
		}},
		"AVolumeOfOneNodeIsRefusedToOthers": {publish: func(ctx context.Context, b backend.Backend, r backend.Publish) (backend.Connection, error) {
			r.Shared = true
			return b.Publish(ctx, r)
		}},
		"NoNodeMeansAllNodes": {unpublish: func(ctx context.Context, b backend.Backend, id backend.ID, node string) error {
			if node == "" {
				node = "a"
			}
			return b.Unpublish(ctx, id, node)
		}},
		"AFencedNodeHasNothingAndGetsNothing": {fence: func(ctx context.Context, b backend.Backend, node string) error {
			return errors.Join(b.Fence(ctx, node), b.Unfence(ctx, node))
		}},
		"WhatVanishesBetweenPagesShiftsNothing": {list: byNumber},
		"ATokenThatWasNeverGivenIsRefused":      {list: byNumber},
		"AnEndedContextIsAnError": {remove: func(ctx context.Context, b backend.Backend, id backend.ID) error {
			return b.DeleteVolume(context.WithoutCancel(ctx), backend.ID{Pool: "p", Object: "v-0"})
		}},
		"RandomCallsDoWhatTheModelDoes": {expand: func(ctx context.Context, b backend.Backend, id backend.ID, size backend.Size) (backend.Volume, error) {
			v, err := b.ExpandVolume(ctx, id, size)
			v.Generation = max(v.Generation, 1)
			return v, err
		}},
	} {
		if got := verdict(t, check, healthy()); len(got) != 0 {
			t.Errorf("%s of the healthy twin: %q", check, got)
		}
		subject := healthy()
		s.Backend = subject.Backend
		subject.Backend = s
		if got := verdict(t, check, subject); len(got) == 0 {
			t.Errorf("%s did not find what is wrong", check)
		}
	}
}

// byNumber has tokens that say how many entries were given.
func byNumber(ctx context.Context, b backend.Backend, p backend.Page) ([]backend.Volume, string, error) {
	n := 0
	_, _ = fmt.Sscan(p.Token, &n)
	all, _, err := b.Volumes(ctx, backend.Page{})
	if err != nil || n < 0 || n > len(all) {
		return nil, "", err
	}
	all = all[n:]
	if p.Max > 0 && p.Max < len(all) {
		return all[:p.Max], fmt.Sprint(n + p.Max), nil
	}
	return all, "", nil
}

func TestTheContractSeesTheOtherTenant(t *testing.T) {
	s := healthy()
	s.Other = s.Backend
	for _, check := range []string{"AnotherTenantSeesAndChangesNothing", "TheSameNameIsAnotherVolumeForAnotherTenant"} {
		if got := verdict(t, check, s); len(got) == 0 {
			t.Errorf("%s did not find what is wrong", check)
		}
	}
}

// stepwise has fault points around each creation, which takes two steps; one
// that is careless does the second only for a volume that it made itself.
func stepwise(b backend.Backend, careless bool) sick {
	return sick{Backend: b, create: func(ctx context.Context, b backend.Backend, r backend.CreateVolume) (backend.Volume, error) {
		wanted := r.Size
		_, err := b.Volume(ctx, backend.ID{Pool: r.Pool, Object: backend.ObjectName(backend.VolumeObject, "a", r.Name)})
		found := err == nil
		faultpoint.Here("contract.create.begin")
		if r.Source.IsZero() && !found {
			r.Size = backend.Size{Required: 1}
		}
		if !found {
			if v, err := b.CreateVolume(ctx, r); err != nil {
				return v, err
			}
		}
		faultpoint.Here("contract.create.expand")
		id := backend.ID{Pool: r.Pool, Object: backend.ObjectName(backend.VolumeObject, "a", r.Name)}
		if found && careless {
			return b.Volume(ctx, id)
		}
		return b.ExpandVolume(ctx, id, wanted)
	}}
}

// mortal is a Subject that can be killed: what lives on is the memory twin.
func mortal(careless bool) Subject {
	s := healthy()
	s.Backend = stepwise(s.Backend, careless)
	s.Crash = func(t testing.TB, point string, nth int, call func(backend.Backend)) (Subject, bool) {
		return s, Interrupt(t, point, nth, func() { call(s.Backend) })
	}
	return s
}

func TestACrashBetweenStepsIsFound(t *testing.T) {
	for _, check := range []string{"AnyCallIsFinishedAfterACrash", "AnyCallIsUndoneAfterACrash"} {
		if got := verdict(t, check, mortal(false)); len(got) != 0 {
			t.Errorf("%s of what converges: %q", check, got)
		}
	}
	if got := verdict(t, "AnyCallIsFinishedAfterACrash", mortal(true)); len(got) == 0 {
		t.Error("half a creation was not found")
	}
}
