package lvmthin

import (
	"context"
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store/storetest"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

func TestTheContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		f := newFake(t)
		return storetest.Subject{
			Open:      func(t *testing.T) store.Store { return f.open(t, Config{Marks: store.Marks{Overcommit: 1}}) },
			Leftovers: func(*testing.T) []string { return slices.Collect(maps.Keys(f.lvs)) },
			Points:    Points,
			Size:      2 * fakeExtent,
		}
	})
}

func spec(name string) store.Spec {
	return store.Spec{Name: name, Size: fakeExtent, Labels: storetest.Labels(1)}
}

func TestAPoolIsMadeToFailWritesWhenItIsFull(t *testing.T) {
	f := newFake(t)
	f.open(t, Config{})
	if f.whenFull != "error" {
		t.Errorf("it would %s", f.whenFull)
	}
	f.open(t, Config{QueueWhenFull: true})
	if f.whenFull != "queue" {
		t.Errorf("it would %s", f.whenFull)
	}
}

func TestAPoolThatShowsOldBytesIsRefused(t *testing.T) {
	f := newFake(t)
	f.zero = ""
	_, err := open(t.Context(), Config{VolumeGroup: "vg0", ThinPool: "pool0"}, f.run, f.dev, true)
	if err == nil || !strings.Contains(err.Error(), "lvchange -Zy vg0/pool0") {
		t.Errorf("%v", err)
	}
}

func TestAPoolThatIsNotActiveIsActivated(t *testing.T) {
	f := newFake(t)
	f.inactive = true
	f.open(t, Config{})
	if f.inactive {
		t.Error("it is not active")
	}
}

func TestWithoutUdevLVMMakesItsNodesItself(t *testing.T) {
	f := newFake(t)
	if _, err := open(t.Context(), Config{VolumeGroup: "vg0", ThinPool: "pool0"}, f.run, f.dev, false); err != nil {
		t.Fatal(err)
	}
	for _, c := range f.commands {
		if want := "devices{scan_lvs=0} activation{udev_sync=0 udev_rules=0}"; c[1] != "--config" || c[2] != want {
			t.Errorf("%v", c)
		}
	}
}

func TestNamesThatAreNoNamesOfLVMAreRefused(t *testing.T) {
	f := newFake(t)
	for _, c := range []Config{{VolumeGroup: "-vg", ThinPool: "p"}, {VolumeGroup: "vg", ThinPool: "p/q"}, {VolumeGroup: "", ThinPool: "p"},
		{VolumeGroup: "vg0", ThinPool: "pool0", Devices: []string{"sda"}}, {VolumeGroup: "vg0", ThinPool: "pool0", Devices: []string{"/dev/a,/dev/b"}},
		{VolumeGroup: "vg0", ThinPool: strings.Repeat("p", maxPool+1)}, {VolumeGroup: "vg0", ThinPool: "pool0", Marks: store.Marks{Data: 2}}} {
		if _, err := open(t.Context(), c, f.run, f.dev, true); err == nil {
			t.Errorf("%+v was opened", c)
		}
	}
	if len(f.commands) != 0 {
		t.Errorf("commands ran: %v", f.commands)
	}
}

func TestAboveAMarkNothingIsPromised(t *testing.T) {
	f := newFake(t)
	s := f.open(t, Config{})
	if _, err := s.Create(t.Context(), spec("v-1")); err != nil {
		t.Fatal(err)
	}
	for name, fill := range map[string]func(){
		"data":     func() { f.data = "85.00" },
		"metadata": func() { f.metadata = "70.00" },
		"full":     func() { f.data = "100.00" },
		"health":   func() { f.health = "metadata_read_only" },
	} {
		fill()
		before := len(f.lvs)
		_, err := s.Create(t.Context(), spec("v-2"))
		copied := spec("s-2")
		copied.Source = "v-1"
		_, err2 := s.Create(t.Context(), copied)
		_, err3 := s.Expand(t.Context(), "v-1", 2*fakeExtent)
		for _, err := range []error{err, err2, err3} {
			if !errors.Is(err, backend.ErrNoSpace) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if u, err := s.Usage(t.Context()); err != nil || !u.Filling || u.Available != 0 {
			t.Errorf("%s: %+v, %v", name, u, err)
		}
		if len(f.lvs) != before {
			t.Errorf("%s: something was made", name)
		}
		f.data, f.metadata, f.health = "1.00", "2.00", ""
	}
	if _, err := s.Create(t.Context(), spec("v-2")); err != nil {
		t.Errorf("below the marks again: %v", err)
	}
}

func TestAnAdministratorsVolumeIsNotTouched(t *testing.T) {
	f := newFake(t)
	f.lvs["csi.pool0.v-1"] = &fakeLV{size: fakeExtent, tags: []string{"backup"}, active: true}
	s := f.open(t, Config{})
	if _, err := s.Create(t.Context(), spec("v-1")); err == nil || !strings.Contains(err.Error(), "csi.pool0.v-1") {
		t.Errorf("create: %v", err)
	}
	if err := s.Delete(t.Context(), "v-1"); err == nil {
		t.Error("it was deleted")
	}
	objects, err := s.Objects(t.Context())
	if err != nil || len(objects) != 0 || len(f.lvs) != 1 {
		t.Errorf("%v, %v, %v", objects, err, f.lvs)
	}
}

func TestAnOpenVolumeIsInUse(t *testing.T) {
	f := newFake(t)
	s := f.open(t, Config{})
	if _, err := s.Create(t.Context(), spec("v-1")); err != nil {
		t.Fatal(err)
	}
	f.opened["csi.pool0.v-1"] = true
	if err := s.Delete(t.Context(), "v-1"); !errors.Is(err, backend.ErrInUse) {
		t.Errorf("delete: %v", err)
	}
	if err := s.Deactivate(t.Context(), "v-1"); !errors.Is(err, backend.ErrInUse) {
		t.Errorf("deactivate: %v", err)
	}
}

func TestAFailedCreationLeavesNothing(t *testing.T) {
	for _, command := range []string{"lvcreate", "lvextend", "lvchange"} {
		f := newFake(t)
		s := f.open(t, Config{})
		if _, err := s.Create(t.Context(), spec("v-1")); err != nil {
			t.Fatal(err)
		}
		f.fail = command
		copied := spec("v-2")
		copied.Source, copied.Size = "v-1", 2*fakeExtent
		if _, err := s.Create(t.Context(), copied); !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("%s: %v", command, err)
		}
		if len(f.lvs) != 1 {
			t.Errorf("%s: left %v", command, f.lvs)
		}
	}
}

// A volume's node lies below a path of the caller's choosing; a name is never
// more than a name in it.
func TestCommandsAreArgumentLists(t *testing.T) {
	f := newFake(t)
	s := f.open(t, Config{Devices: []string{"/dev/sdb", "/dev/sdc"}})
	f.commands = nil
	if _, err := s.Create(t.Context(), spec("v-1")); err != nil {
		t.Fatal(err)
	}
	always := []string{"--config", "devices{scan_lvs=0}", "--devices", "/dev/sdb", "--devices", "/dev/sdc"}
	var made []string
	for _, c := range f.commands {
		if !slices.Equal(c[1:1+len(always)], always) {
			t.Errorf("%v does not begin with %v", c, always)
		}
		if c[0] == "lvcreate" {
			made = c[1+len(always):]
		}
	}
	want := strings.Fields("-y -ky -n csi.pool0.v-1 -Wn -K -ay -V 1048576b -T vg0/pool0 --addtag csi-mpath.version=1 --addtag csi-mpath.phase=creating" +
		" --addtag csi-mpath.tenant=tenant-1 --addtag csi-mpath.name=cHZjLTE --addtag csi-mpath.identity=00000000000000000000000000000002" +
		" --addtag csi-mpath.created=1700000001 --addtag csi-mpath.generation=0")
	if !slices.Equal(made, want) {
		t.Errorf("lvcreate %v\nwant %v", made, want)
	}
}

func TestACommandOutlivesTheCallerAndTheNextOneWaits(t *testing.T) {
	f := newFake(t)
	s := f.open(t, Config{})
	begun, goOn := make(chan struct{}), make(chan struct{})
	s.run = func(ctx context.Context, args []string) ([]byte, error) {
		close(begun)
		<-goOn
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := s.lvm(ctx, "lvchange")
		ended <- err
	}()
	<-begun
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := s.lvm(ctx, "lvs"); !errors.Is(err, context.Canceled) {
		t.Errorf("a second command beside it: %v", err)
	}
	close(goOn)
	s.turn <- struct{}{} // it has ended
	<-s.turn
}

func TestWhatACommandPrintsIsBounded(t *testing.T) {
	b := &bounded{limit: 4}
	for _, p := range []string{"ab", "cdef", "gh"} {
		if n, err := b.Write([]byte(p)); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
	}
	if b.String() != "abcd" || !b.cut {
		t.Errorf("%q, %v", b.String(), b.cut)
	}
	if c := complaint([]byte("  a\n b\xff " + strings.Repeat("x", 2*maxComplaint))); len(c) > maxComplaint+3 || !strings.HasPrefix(c, "a b?") {
		t.Errorf("%.20q of %d bytes", c, len(c))
	}
}

func TestAProgramOfTheMachineIsRunAsItIs(t *testing.T) {
	if _, err := program("no-such-program-anywhere"); err == nil || !strings.Contains(err.Error(), "install") {
		t.Errorf("%v", err)
	}
	if path, err := program("sh"); err != nil || filepath.Base(path) != "sh" {
		t.Errorf("%s, %v", path, err)
	}
}

func TestTheReportOfARealPoolIsRead(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "lvs-2.03.16.json"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := parse(b)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]volume{
		"other": {name: "other", size: 4 << 20, extent: 4 << 20, kind: "linear", active: true, data: -1, metadata: -1},
		"pool0": {name: "pool0", size: 100 << 20, extent: 4 << 20, kind: "thin-pool", active: true, open: true, data: 0.0019, metadata: 0.1104, errorWhenFull: true, zeroing: true},
		"s-bbb": {name: "s-bbb", size: 8 << 20, extent: 4 << 20, tags: []string{"csi-mpath"}, pool: "pool0", kind: "thin", data: -1, metadata: -1, zeroing: true},
		"v-aaa": {name: "v-aaa", size: 8 << 20, extent: 4 << 20, tags: []string{"csi-mpath", "csi-mpath.x=abc-_"}, pool: "pool0", kind: "thin", active: true, data: 0.0234, metadata: -1, zeroing: true},
	}
	if len(all) != len(want) {
		t.Errorf("%d volumes", len(all))
	}
	for _, v := range all {
		w := want[v.name]
		if !slices.Equal(v.tags, w.tags) {
			t.Errorf("%s: tags %v", v.name, v.tags)
		}
		v.tags, w.tags = nil, nil
		if v.name != w.name || v.size != w.size || v.pool != w.pool || v.kind != w.kind || v.active != w.active || v.open != w.open ||
			math.Abs(v.data-w.data) > 1e-9 || v.metadata != w.metadata || v.errorWhenFull != w.errorWhenFull || v.zeroing != w.zeroing || v.extent != w.extent {
			t.Errorf("%+v\nwant %+v", v, w)
		}
	}
}

func FuzzReport(f *testing.F) {
	if b, err := os.ReadFile(filepath.Join("testdata", "lvs-2.03.16.json")); err == nil {
		f.Add(b)
	}
	f.Add([]byte(`{"report":[{"lv":[{}]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := parse(b)
		if err != nil {
			return
		}
		for _, v := range all {
			if v.size < 0 || v.extent <= 0 || v.data > 1 || v.metadata > 1 || !validName(v.name) {
				t.Errorf("%+v", v)
			}
		}
	})
}

func FuzzTags(f *testing.F) {
	seed, _ := encode(described{phase: store.Ready, labels: storetest.Labels(1)})
	f.Add(strings.Join(seed, ","))
	f.Add("csi-mpath.version=1,csi-mpath.tunable=YQ.Yg,csi-mpath.tunable=YQ.Yg")
	f.Fuzz(func(t *testing.T, tags string) {
		d, err := decode(strings.Split(tags, ","))
		if err != nil {
			return
		}
		again, err := encode(d)
		if err != nil {
			t.Fatalf("%+v: %v", d, err)
		}
		if e, err := decode(again); err != nil || e.labels.Name != d.labels.Name || len(e.labels.Tunables) != len(d.labels.Tunables) {
			t.Errorf("%+v became %+v, %v", d, e, err)
		}
	})
}
