package reference

import (
	"flag"
	"fmt"
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/tunable"
)

var update = flag.Bool("update", false, "write the tables again")

// meanings says what each tunable is for, and what it may be.
var meanings = map[string][2]string{
	"pathSelector":     {"`round-robin`, `queue-length`, `service-time`, `historical-service-time`, `io-affinity`", "which of several good paths takes a request"},
	"mergeDeadline":    {"`off`, `auto`, or a duration up to 100ms", "how long the head of a contiguous stream waits for more of it, so that fewer and larger commands go out; random I/O never waits. `0`: only what comes together is joined"},
	"polling":          {"`off`, `adaptive`, or a duration up to 1ms", "how long a reader looks for answers before it sleeps; costs CPU"},
	"noPathTimeout":    {"`never`, or a duration up to 24h", "how long I/O waits while no path works, before it fails. An error may cost the file system: keep `never` unless an application handles errors"},
	"pathTimeout":      {"1s to 5m", "a path that sends nothing for so long while it owes an answer is lost"},
	"commandTimeout":   {"1s to 10m", "a command is aborted; without an answer to that, the path is lost"},
	"minPaths":         {"1 to 32", "paths that must be there for a volume to be staged; the others join later"},
	"failback":         {"`immediate`, `manual`, or a duration up to 24h", "when a preferred group of paths is used again after it came back"},
	"lanes":            {"1 to 16", "connections between the kernel and the plugin; more than 1 needs a finite noPathTimeout"},
	"queueDepth":       {"1 to 4096", "commands in flight per path"},
	"sessionsPerPath":  {"1 to 8", "connections to each portal"},
	"headerDigest":     {"`none`, `crc32c`", "a checksum over each header"},
	"dataDigest":       {"`none`, `crc32c`", "a checksum over all data; costs CPU at both ends"},
	"fenceTimeout":     {"1s to 1h", "iSCSI: when nothing proves that a lost session's writes ended, how long they may still land; overlapping writes wait so long. Below what the array needs to give up a command, a stale write is possible"},
	"keepAliveTimeout": {"100ms to 1m", "NVMe: after two or three times this, a lost controller's writes have ended ([attach.md](attach.md))"},
	"sourceAddresses":  {"addresses or interfaces by comma, in the order of portals", "binds paths to networks: two paths over one interface are no redundancy"},
	"shutdownTimeout":  {"up to 10m", "how long I/O that no path takes may hold up the machine's shutdown"},
}

func TestTheTunablesOfTheStorageClassPageAreThoseOfTheCode(t *testing.T) {
	lines := []string{"| key | default | live | values | meaning |", "|---|---|---|---|---|"}
	seen := map[string]bool{}
	each(parse(t, "pkg/tunable"), func(c *ast.CallExpr) {
		if name(c.Fun) != "entry" || len(c.Args) < 3 {
			return
		}
		key, _ := text(c.Args[0])
		standard, _ := text(c.Args[1])
		m, known := meanings[key]
		if !known {
			t.Fatalf("tunable %s has no meaning in this test", key)
		}
		seen[key] = true
		live := map[bool]string{true: "yes", false: "at the next stage"}[tunable.Live(key)]
		lines = append(lines, row(code(key), code(standard), live, m[0], m[1]))
	})
	if got := sorted(seen); !slices.Equal(got, tunable.Names()) || len(seen) != len(meanings) {
		t.Fatalf("found %v, want %v", got, tunable.Names())
	}
	fresh(t, "docs/storageclass.md", "tunables", lines)
}

// prefixes of metrics' names, by package, and labels that all of it have.
var prefixes = map[string][2]string{"pkg/driver": {"csi_mpath_", ""}, "pkg/health": {"csi_mpath_volume_", "volume"}, "pkg/agent": {"csi_mpath_agent_", ""}}

func TestTheMetricsPageHasTheMetricsOfTheCode(t *testing.T) {
	for dir, p := range prefixes {
		found := map[string]string{}
		note := func(metric, help string, labels []string) {
			if p[1] != "" {
				labels = append([]string{p[1]}, labels...)
			}
			found[metric] = row(code(p[0]+metric), code(strings.Join(labels, ", ")), help)
		}
		files := parse(t, dir)
		each(files, func(c *ast.CallExpr) { noteCall(c, note) })
		lines := []string{"| name | labels | what it is |", "|---|---|---|"}
		for _, metric := range sorted(keys(found)) {
			lines = append(lines, found[metric])
		}
		if len(found) == 0 {
			t.Fatalf("no metric found in %s: the search is broken", dir)
		}
		fresh(t, "docs/metrics.md", dir, lines)
	}
}

func keys(m map[string]string) map[string]bool {
	out := map[string]bool{}
	for k := range m {
		out[k] = true
	}
	return out
}

// noteCall finds a metric in a call: New...(Opts{Name, Help}, labels), or one of the
// short ways desc and gaugeOf.
func noteCall(c *ast.CallExpr, note func(metric, help string, labels []string)) {
	if fun := name(c.Fun); (fun == "desc" || fun == "gaugeOf") && len(c.Args) >= 2 {
		metric, isA := text(c.Args[0])
		help, isB := text(c.Args[1])
		if isA && isB {
			note(metric, help, texts(c.Args[2:]))
		}
		return
	}
	if len(c.Args) == 0 {
		return
	}
	lit, is := c.Args[0].(*ast.CompositeLit)
	if !is || !strings.HasSuffix(name(lit.Type), "Opts") {
		return
	}
	field := map[string]string{}
	for _, e := range lit.Elts {
		if kv, is := e.(*ast.KeyValueExpr); is {
			field[name(kv.Key)], _ = text(kv.Value)
		}
	}
	if field["Name"] == "" || field["Help"] == "" {
		return
	}
	var labels []string
	if len(c.Args) > 1 {
		if l, is := c.Args[1].(*ast.CompositeLit); is {
			labels = texts(l.Elts)
		}
	}
	note(field["Name"], field["Help"], labels)
}

func texts(all []ast.Expr) (out []string) {
	for _, e := range all {
		if s, is := text(e); is {
			out = append(out, s)
		}
	}
	return out
}

// sentinels are the errors of a package, each with what it says.
func sentinels(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	each(parse(t, dir), func(v *ast.ValueSpec) {
		for i, n := range v.Names {
			if i >= len(v.Values) {
				return
			}
			if c, is := v.Values[i].(*ast.CallExpr); is && len(c.Args) == 1 && name(c.Fun) == "New" {
				out[n.Name], _ = text(c.Args[0])
			}
		}
	})
	return out
}

func TestTheErrorsPageHasTheCodesOfTheDriver(t *testing.T) {
	say := map[string]map[string]string{"backend": sentinels(t, "pkg/backend"), "volume": sentinels(t, "pkg/volume"), "attrs": sentinels(t, "pkg/volume/attrs"), "": sentinels(t, "pkg/driver")}
	lines := []string{"| code | the message has | from |", "|---|---|---|"}
	from := map[string]string{"backend": "storage", "volume": "node", "attrs": "parameters", "": "controller"}
	var rows []string
	each(parse(t, "pkg/driver"), func(l *ast.CompositeLit) {
		if len(l.Elts) != 2 || l.Type != nil {
			return
		}
		c, is := l.Elts[1].(*ast.SelectorExpr)
		if !is || name(c.X) != "codes" {
			return
		}
		switch e := l.Elts[0].(type) {
		case *ast.SelectorExpr:
			pkg := name(e.X)
			if said := say[pkg][e.Sel.Name]; said != "" {
				rows = append(rows, row(code(c.Sel.Name), said, from[pkg]))
			} else if pkg != "context" {
				t.Fatalf("%s.%s says nothing that this test can find", pkg, e.Sel.Name)
			}
		case *ast.Ident:
			rows = append(rows, row(code(c.Sel.Name), say[""][e.Name], from[""]))
		}
	})
	slices.Sort(rows)
	if len(rows) < 20 {
		t.Fatalf("only %d errors found: the search is broken", len(rows))
	}
	fresh(t, "docs/errors.md", "codes", append(lines, rows...))
}

var reason = regexp.MustCompile(`^[A-Z][a-z]+([A-Z][a-z]+)*$`)

// reasons are what people may meet as the reason of an Event or a condition.
func reasons(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	note := func(e ast.Expr) {
		if s, is := text(e); is && reason.MatchString(s) {
			out[s] = true
		}
	}
	for _, dir := range []string{"pkg/health", "pkg/volume", "cmd/csi-mpath"} {
		files := parse(t, dir)
		each(files, func(kv *ast.KeyValueExpr) {
			if name(kv.Key) == "Reason" {
				note(kv.Value)
			}
		})
		each(files, func(a *ast.AssignStmt) {
			for i, l := range a.Lhs {
				if s, is := l.(*ast.SelectorExpr); is && s.Sel.Name == "Reason" && i < len(a.Rhs) {
					note(a.Rhs[i])
				}
			}
		})
		each(files, func(v *ast.ValueSpec) {
			if name(v.Type) == "EventKind" && len(v.Values) == 1 {
				note(v.Values[0])
			}
		})
	}
	return out
}

func TestTheEventsPageHasEveryReasonOfTheCodeAndNoOther(t *testing.T) {
	page := read(t, "docs/events.md")
	have := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Za-z]+)`").FindAllStringSubmatch(page, -1) {
		have[m[1]] = true
	}
	want := reasons(t)
	if len(want) < 8 {
		t.Fatalf("only %v found: the search is broken", sorted(want))
	}
	for r := range want {
		if !have[r] {
			t.Errorf("docs/events.md has no row for %s", r)
		}
		delete(have, r)
	}
	if len(have) > 0 {
		t.Errorf("docs/events.md has %v, and no code says them", sorted(have))
	}
}

func TestEveryMetricOfAnAlertIsThere(t *testing.T) {
	page := read(t, "docs/metrics.md")
	for _, m := range regexp.MustCompile(`csi_mpath_[a-z_]+`).FindAllString(read(t, "charts/csi-mpath/files/alerts.yaml"), -1) {
		metric := strings.TrimSuffix(m, "_count")
		if !strings.Contains(page, fmt.Sprintf("`%s`", metric)) {
			t.Errorf("an alert uses %s, which docs/metrics.md does not have", m)
		}
	}
}
