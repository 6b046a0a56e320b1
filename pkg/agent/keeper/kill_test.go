package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
	"github.com/csi-mpath/csi-mpath/test/child"
)

// childEnv makes this test binary an agent that makes one call: its value is a
// task.
const childEnv = "KEEPER_TEST_CHILD"

// task is what a child does.
type task struct {
	State, Pool string
	Listen      map[backend.Transport]string
	Verb        string
}

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		if err := beChild(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func beChild(text string) error {
	var do task
	if err := json.Unmarshal([]byte(text), &do); err != nil {
		return err
	}
	faultpoint.Arm()
	s := &server{openStore: openDirectory, state: do.State, pool: do.Pool, listen: do.Listen}
	if err := s.begin(context.Background()); err != nil {
		return err
	}
	return verbs[do.Verb].call(context.Background(), s.k.For("t"))
}

var (
	killID   = backend.ID{Pool: pool0, Object: backend.ObjectName(backend.VolumeObject, "t", "v")}
	killSize = backend.Size{Required: 4 * mib}
)

// verb is a call in a state that it changes.
type verb struct {
	before []string // verbs
	call   func(ctx context.Context, b backend.Backend) error
}

// verbs are all that the store without snapshots can.
var verbs = map[string]verb{
	"create": {nil, func(ctx context.Context, b backend.Backend) error {
		_, err := b.CreateVolume(ctx, backend.CreateVolume{Name: "v", Pool: pool0, Size: killSize})
		return err
	}},
	"delete": {[]string{"create"}, func(ctx context.Context, b backend.Backend) error { return b.DeleteVolume(ctx, killID) }},
	"expand": {[]string{"create", "publish a"}, func(ctx context.Context, b backend.Backend) error {
		_, err := b.ExpandVolume(ctx, killID, backend.Size{Required: 8 * mib})
		return err
	}},
	"tune": {[]string{"create"}, func(ctx context.Context, b backend.Backend) error {
		_, err := b.TuneVolume(ctx, killID, map[string]string{"polling": "off"})
		return err
	}},
	"publish a": {[]string{"create"}, publishTo("a")},
	"publish b": {[]string{"create", "publish a"}, publishTo("b")},
	"unpublish": {[]string{"create", "publish a"}, func(ctx context.Context, b backend.Backend) error { return b.Unpublish(ctx, killID, "a") }},
	"unpublish one": {[]string{"create", "publish a", "publish b"}, func(ctx context.Context, b backend.Backend) error {
		return b.Unpublish(ctx, killID, "a")
	}},
	"fence":   {[]string{"create", "publish a"}, func(ctx context.Context, b backend.Backend) error { return b.Fence(ctx, "a") }},
	"start":   {nil, func(context.Context, backend.Backend) error { return nil }},
	"unfence": {[]string{"fence"}, func(ctx context.Context, b backend.Backend) error { return b.Unfence(ctx, "a") }},
}

func publishTo(node string) func(context.Context, backend.Backend) error {
	return func(ctx context.Context, b backend.Backend) error {
		_, err := b.Publish(ctx, shared(killID, node))
		return err
	}
}

// prepare makes the state that a verb begins in.
func (s *server) prepare(v verb) {
	s.t.Helper()
	for _, name := range v.before {
		if err := verbs[name].call(s.t.Context(), s.k.For("t")); err != nil {
			s.t.Fatalf("%s: %v", name, err)
		}
	}
}

// reset removes all there is, and wants nothing to be left.
func (s *server) reset() {
	s.t.Helper()
	b := s.k.For("t")
	for _, err := range []error{b.Unpublish(s.t.Context(), killID, ""), b.DeleteVolume(s.t.Context(), killID), b.Unfence(s.t.Context(), "a")} {
		if err != nil {
			s.t.Fatal(err)
		}
	}
	if left := s.left(); len(left) > 0 {
		s.t.Fatalf("left behind: %v", left)
	}
}

// picture is the state, without what is random.
func (s *server) picture() string {
	s.t.Helper()
	ctx, b := s.t.Context(), s.k.For("t")
	volumes, _, err1 := b.Volumes(ctx, backend.Page{})
	pubs, _, err2 := b.Publications(ctx, backend.PublicationFilter{}, backend.Page{})
	fenced, err3 := b.Fenced(ctx)
	if err := errors.Join(err1, err2, err3); err != nil {
		s.t.Fatal(err)
	}
	var out strings.Builder
	for _, v := range volumes {
		fmt.Fprintf(&out, "volume %s %d %v %d; ", v.Name, v.Size, v.Tunables, v.Generation)
	}
	for _, p := range pubs {
		fmt.Fprintf(&out, "%s has it, revoking %t; ", p.Node, p.Revoking)
	}
	for _, x := range s.exports {
		served, err := x.Exported(ctx)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, e := range served {
			fmt.Fprintf(&out, "%d may log in; ", len(e.Initiators))
		}
	}
	return out.String() + fmt.Sprint("fenced ", fenced)
}

// steps are the fault points that starting an agent and making the call come to,
// each with its count; the agent runs when it returns.
func (s *server) steps(v verb) []string {
	s.t.Helper()
	s.close()
	return faultpoint.Trace(func() {
		s.open()
		if err := v.call(s.t.Context(), s.k.For("t")); err != nil {
			s.t.Fatal(err)
		}
	})
}

// killed has a process of its own start, make the call, and be killed at the
// point.
func (s *server) killed(name, point string) {
	s.t.Helper()
	text, err := json.Marshal(task{State: s.state, Pool: s.pool, Listen: s.listen, Verb: name})
	if err != nil {
		s.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	c, err := child.Start(child.Options{Env: []string{childEnv + "=" + string(text), faultpoint.Env + "=" + point}}, self)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := c.Wait(); err == nil || !strings.Contains(err.Error(), "signal: killed") {
		s.t.Fatalf("%s to be killed at %s: %v", name, point, err)
	}
}

// kills kills each verb at each of its steps, and has the next agent go on.
func kills(t *testing.T, then func(s *server, name, want string) error) {
	s, n := newServer(t), 0
	for _, name := range slices.Sorted(maps.Keys(verbs)) {
		v := verbs[name]
		s.prepare(v)
		steps := s.steps(v)
		want := s.picture()
		for _, point := range steps {
			s.reset()
			s.prepare(v)
			s.close()
			s.killed(name, point)
			n++
			s.open()
			if err := then(s, name, want); err != nil {
				t.Fatalf("%s, killed at %s: %v", name, point, err)
			}
		}
		s.reset()
	}
	t.Logf("%d kills", n)
}

func TestAnyCallIsFinishedAfterAKillAtAnyOfItsSteps(t *testing.T) {
	kills(t, func(s *server, name, want string) error {
		if err := verbs[name].call(s.t.Context(), s.k.For("t")); err != nil {
			return err
		}
		if got := s.picture(); got != want {
			return fmt.Errorf("called again it ends in %s; want %s", got, want)
		}
		return nil
	})
}

func TestAnyCallIsUndoneAfterAKillAtAnyOfItsSteps(t *testing.T) {
	kills(t, func(s *server, _, _ string) error {
		s.reset()
		return nil
	})
}

func TestAStartThatIsKilledIsFinishedByTheNext(t *testing.T) {
	s := newServer(t)
	half := func() { // a revocation that is only written down
		s.reset()
		s.prepare(verbs["unpublish"])
		s.close()
		s.killed("unpublish", "keeper.unpublish.marked:1")
	}
	half()
	steps := faultpoint.Trace(s.open)
	for _, point := range steps {
		half()
		s.killed("start", point)
		s.open()
		if got := s.picture(); strings.Contains(got, "has it") || strings.Contains(got, "log in") {
			t.Fatalf("killed at %s: %s", point, got)
		}
	}
	s.reset()
	t.Logf("%d kills", 2*len(steps)+1)
}
