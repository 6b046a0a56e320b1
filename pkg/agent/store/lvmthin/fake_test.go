package lvmthin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const (
	fakeExtent = 1 << 20
	fakePool   = 1 << 30 // bytes
)

// fake is LVM with one group and one pool, as much as the store uses of it: it
// reads argument lists as LVM does, and keeps the bytes of volumes in files.
type fake struct {
	mu       sync.Mutex
	dev      string
	lvs      map[string]*fakeLV
	commands [][]string
	// what the pool says
	data, metadata, whenFull, zero, health string
	fail                                   string // the command that fails
	opened                                 map[string]bool
	inactive                               bool // the pool
}

type fakeLV struct {
	size   int64
	tags   []string
	active bool
	ro     bool
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{dev: t.TempDir(), lvs: map[string]*fakeLV{}, data: "1.00", metadata: "2.00", whenFull: "queue", zero: "zero", opened: map[string]bool{}}
	for _, d := range []string{"vg0", "inactive"} {
		if err := os.Mkdir(filepath.Join(f.dev, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func (f *fake) open(t *testing.T, cfg Config) *Store {
	t.Helper()
	cfg.VolumeGroup, cfg.ThinPool = "vg0", "pool0"
	s, err := open(t.Context(), cfg, f.run, f.dev, true)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// bytes is where a volume's are.
func (f *fake) bytes(name string) string {
	if f.lvs[name].active {
		return filepath.Join(f.dev, "vg0", name)
	}
	return filepath.Join(f.dev, "inactive", name)
}

// flags that have a value.
var valued = []string{"--config", "--devices", "--reportformat", "--units", "-o", "--select", "-n", "-V", "-T", "-p", "-L", "--addtag", "--deltag", "--errorwhenfull"}

// run is the runner.
func (f *fake) run(_ context.Context, args []string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commands = append(f.commands, slices.Clone(args))
	if args[0] == f.fail {
		return nil, fmt.Errorf("lvm %s: exit status 5", args[0])
	}
	opts, rest := map[string][]string{}, []string(nil)
	for i := 1; i < len(args); i++ {
		switch {
		case slices.Contains(valued, args[i]) && i+1 < len(args):
			opts[args[i]] = append(opts[args[i]], args[i+1])
			i++
		case strings.HasPrefix(args[i], "-"):
			opts[args[i]] = append(opts[args[i]], "")
		default:
			rest = append(rest, args[i])
		}
	}
	name := ""
	if len(rest) > 0 {
		_, name, _ = strings.Cut(rest[0], "/")
	}
	switch args[0] {
	case "lvs":
		return f.report(opts)
	case "lvcreate":
		return nil, f.create(opts, name)
	case "lvchange":
		return nil, f.change(opts, name)
	case "lvextend":
		return nil, f.extend(opts, name)
	case "lvremove":
		return nil, f.remove(name)
	}
	return nil, fmt.Errorf("no such command: %v", args)
}

func (f *fake) report(opts map[string][]string) ([]byte, error) {
	rows := []map[string]string{}
	add := func(row map[string]string) {
		for _, field := range strings.Split(opts["-o"][0], ",") {
			if _, ok := row[field]; !ok {
				row[field] = ""
			}
		}
		row["vg_extent_size"] = strconv.Itoa(fakeExtent)
		if sel := opts["--select"]; sel == nil || sel[0] == fmt.Sprintf("lv_name=%q", row["lv_name"]) {
			rows = append(rows, row)
		}
	}
	state := "active"
	if f.inactive {
		state = ""
	}
	add(map[string]string{"lv_name": "pool0", "lv_size": strconv.Itoa(fakePool), "segtype": "thin-pool", "lv_active": state, "data_percent": f.data,
		"metadata_percent": f.metadata, "lv_when_full": f.whenFull, "zero": f.zero, "lv_health_status": f.health})
	for _, name := range slices.Sorted(maps.Keys(f.lvs)) {
		l := f.lvs[name]
		row := map[string]string{"lv_name": name, "lv_size": strconv.FormatInt(l.size, 10), "lv_tags": strings.Join(l.tags, ","), "pool_lv": "pool0", "segtype": "thin"}
		if l.active {
			row["lv_active"], row["data_percent"] = "active", f.written(name)
		}
		if f.opened[name] {
			row["lv_device_open"] = "open"
		}
		add(row)
	}
	return json.Marshal(map[string]any{"report": []any{map[string]any{"lv": rows}}})
}

func (f *fake) written(name string) string {
	b, err := os.ReadFile(f.bytes(name))
	if err != nil || !bytes.Equal(b, make([]byte, len(b))) {
		return "1.00"
	}
	return "0.00"
}

func (f *fake) create(opts map[string][]string, from string) error {
	name := opts["-n"][0]
	if f.lvs[name] != nil {
		return errors.New("already exists")
	}
	l := &fakeLV{tags: opts["--addtag"], active: opts["-ay"] != nil && opts["-K"] != nil}
	var content []byte
	if opts["-s"] != nil {
		origin := f.lvs[from]
		if origin == nil {
			return errors.New("origin not found")
		}
		if opts["-Wn"] != nil {
			return errors.New("option --wipesignatures is unsupported with snapshots")
		}
		l.size, l.ro = origin.size, opts["-p"][0] == "r"
		content, _ = os.ReadFile(f.bytes(from))
	} else {
		l.size = units(opts["-V"][0])
	}
	f.lvs[name] = l
	return errors.Join(os.WriteFile(f.bytes(name), content, 0o600), os.Truncate(f.bytes(name), l.size))
}

func units(s string) int64 {
	n, err := strconv.ParseInt(strings.TrimSuffix(s, "b"), 10, 64)
	if err != nil || !strings.HasSuffix(s, "b") || n%fakeExtent != 0 {
		panic("size " + s)
	}
	return n
}

func (f *fake) change(opts map[string][]string, name string) error {
	if name == "pool0" {
		if v := opts["--errorwhenfull"]; v != nil {
			f.whenFull = map[string]string{"y": "error", "n": "queue"}[v[0]]
		}
		f.inactive = f.inactive && opts["-ay"] == nil
		return nil
	}
	l := f.lvs[name]
	if l == nil {
		return errors.New("failed to find logical volume")
	}
	l.tags = slices.DeleteFunc(slices.Clone(l.tags), func(t string) bool { return slices.Contains(opts["--deltag"], t) })
	l.tags = append(l.tags, opts["--addtag"]...)
	was := f.bytes(name)
	l.active = l.active && opts["-an"] == nil || opts["-ay"] != nil && opts["-K"] != nil
	return os.Rename(was, f.bytes(name))
}

func (f *fake) extend(opts map[string][]string, name string) error {
	l := f.lvs[name]
	size := units(opts["-L"][0])
	if l == nil || l.size >= size {
		return errors.New("matches existing size")
	}
	l.size = size
	return os.Truncate(f.bytes(name), size)
}

func (f *fake) remove(name string) error {
	if f.lvs[name] == nil {
		return errors.New("failed to find logical volume")
	}
	if f.opened[name] {
		return errors.New("in use")
	}
	if err := os.Remove(f.bytes(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	delete(f.lvs, name)
	return nil
}
