package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/device"
)

// The goals.
const (
	goalMemory = 300.0 // KiB per idle volume, buffers not counted
	goalBack   = 30 * time.Second
)

// memoryRow is the product's memory per volume, KiB, above what it had without
// volumes.
type memoryRow struct {
	When       string  `json:"when"`
	RSS        float64 `json:"rss_kib"`
	Files      float64 `json:"of_it_files_kib"`
	Heap       float64 `json:"go_heap_kib"`
	Stack      float64 `json:"go_stacks_kib"`
	Goroutines float64 `json:"goroutines"`
}

// outageRow is one outage. CPU is in shares of one core.
type outageRow struct {
	Name    string        `json:"outage"`
	Back    time.Duration `json:"all_back_ns"`
	Rate    Rate          `json:"rate"`
	AwayCPU float64       `json:"cpu_while_away"`
	BackCPU float64       `json:"cpu_while_coming_back"`
	Stall   time.Duration `json:"longest_answer_ns"`
}

// report is the whole run, as --json writes it.
type report struct {
	Suite    string            `json:"suite"`
	Volumes  int               `json:"volumes"`
	Opened   time.Duration     `json:"opened_ns"` // every volume had a path
	AllUp    time.Duration     `json:"all_up_ns"`
	OpenCPU  time.Duration     `json:"open_cpu_ns"`
	OpenRate Rate              `json:"open_rate"`
	Memory   []memoryRow       `json:"memory"`
	IdleCPU  float64           `json:"idle_cpu"`
	IdleFor  time.Duration     `json:"idle_for_ns"`
	Outages  []outageRow       `json:"outages"`
	Requests int               `json:"verified_requests"`
	Logins   device.LoginStats `json:"logins"`
	Goals    []goal            `json:"goals"`
	Failure  string            `json:"failure,omitempty"`
}

// goal is one of them, and whether it was met.
type goal struct {
	What string `json:"goal"`
	Met  bool   `json:"met"`
}

func (r *report) judge() {
	if r.Failure != "" {
		return
	}
	add := func(met bool, format string, a ...any) {
		r.Goals = append(r.Goals, goal{fmt.Sprintf(format, a...), met})
	}
	for _, m := range r.Memory {
		add(m.RSS <= goalMemory, "%s: at most %.0f KiB per volume", m.When, goalMemory)
	}
	most := float64(portals * (r.Logins.PerSecond + r.Logins.Burst))
	for _, o := range r.Outages {
		add(o.Back <= goalBack, "%s: all paths back within %v", o.Name, goalBack)
		add(o.Rate.Peak <= most, "%s: at most %.0f logins in any second", o.Name, most)
	}
}

func (r *report) missed() bool {
	return slices.ContainsFunc(r.Goals, func(g goal) bool { return !g.Met })
}

func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "\n%d volumes x %d paths: first path of each after %.1f s, all after %.1f s, %.1f s of CPU, at most %.0f logins in a second\n\n",
		r.Volumes, portals, r.Opened.Seconds(), r.AllUp.Seconds(), r.OpenCPU.Seconds(), r.OpenRate.Peak)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "per volume\tresident\tof it mapped files\tGo heap\tGo stacks\tgoroutines\t")
	for _, m := range r.Memory {
		fmt.Fprintf(t, "%s\t%.0f KiB\t%.0f KiB\t%.0f KiB\t%.0f KiB\t%.1f\t\n", m.When, m.RSS, m.Files, m.Heap, m.Stack, m.Goroutines)
	}
	_ = t.Flush()
	fmt.Fprintf(w, "\nidle: %.2f %% of one core over %v\n\n", 100*r.IdleCPU, r.IdleFor)
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "outage of\tall paths back after\tlogins\tmost in a second\tCPU while away\tCPU while coming back\tlongest answer\t")
	for _, o := range r.Outages {
		fmt.Fprintf(t, "%s\t%.1f s\t%d\t%.0f\t%.0f %%\t%.0f %%\t%.2f s\t\n", o.Name, o.Back.Seconds(), o.Rate.Logins, o.Rate.Peak,
			100*o.AwayCPU, 100*o.BackCPU, o.Stall.Seconds())
	}
	_ = t.Flush()
	fmt.Fprintf(w, "\n%d verified requests; logins: %v\n", r.Requests, r.Logins)
	for _, g := range r.Goals {
		fmt.Fprintf(w, "  %-4s %s\n", map[bool]string{true: "met", false: "NOT"}[g.Met], g.What)
	}
}

func (r *report) save(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}
