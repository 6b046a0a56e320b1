package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/csi-mpath/csi-mpath/test/vm/spec"
)

// wish is a module somebody asked for.
type wish struct{ name, params string }

// parseMods reads "nbd:nbds_max=4:max_part=0,ext4".
func parseMods(s string) []wish {
	var out []wish
	for one := range strings.SplitSeq(s, ",") {
		name, params, _ := strings.Cut(strings.TrimSpace(one), ":")
		if name != "" {
			out = append(out, wish{name, strings.ReplaceAll(params, ":", " ")})
		}
	}
	return out
}

// modules knows a kernel's modules by name: what depmod wrote.
type modules struct {
	path    map[string]string   // name → path below the kernel's folder
	needs   map[string][]string // name → names, in the order of loading
	before  map[string][]string // name → names or aliases to load before it, if there are any
	alias   map[string][]string // alias without wildcards → names
	builtin map[string]bool
}

// moduleName is how the kernel calls the module in a file.
func moduleName(path string) string {
	name, _, _ := strings.Cut(filepath.Base(path), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

// readModules reads depmod's files; open gives each by its name.
func readModules(open func(name string) (io.ReadCloser, error)) (*modules, error) {
	m := &modules{path: map[string]string{}, needs: map[string][]string{}, before: map[string][]string{},
		alias: map[string][]string{}, builtin: map[string]bool{}}
	for name, line := range map[string]func([]string){
		"modules.dep": m.dep, "modules.builtin": m.built, "modules.softdep": m.soft, "modules.alias": m.aka,
	} {
		f, err := open(name)
		if err != nil {
			return nil, err
		}
		s := bufio.NewScanner(f)
		s.Buffer(nil, maxModulesLine)
		for s.Scan() {
			if words := strings.Fields(s.Text()); len(words) > 0 {
				line(words)
			}
		}
		if err := errors.Join(s.Err(), f.Close()); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return m, nil
}

// dep takes "path: needed-last … needed-first".
func (m *modules) dep(words []string) {
	path := strings.TrimSuffix(words[0], ":")
	name := moduleName(path)
	m.path[name] = path
	for _, need := range slices.Backward(words[1:]) {
		m.needs[name] = append(m.needs[name], moduleName(need))
	}
}

func (m *modules) built(words []string) { m.builtin[moduleName(words[0])] = true }

// soft takes "softdep name pre: a b post: c".
func (m *modules) soft(words []string) {
	if len(words) < 3 || words[0] != "softdep" {
		return
	}
	name, pre := moduleName(words[1]), false
	for _, w := range words[2:] {
		switch {
		case strings.HasSuffix(w, ":"):
			pre = w == "pre:"
		case pre:
			m.before[name] = append(m.before[name], moduleName(w))
		}
	}
}

// aka takes "alias pattern name".
func (m *modules) aka(words []string) {
	if len(words) == 3 && words[0] == "alias" && !strings.ContainsAny(words[1], "*?[") {
		alias := moduleName(words[1])
		m.alias[alias] = append(m.alias[alias], words[2])
	}
}

// plan collects what to load, in order, each module once.
type plan struct {
	*modules
	at    map[string]int // name → index in what follows
	paths []string
	out   []spec.Module
}

func (m *modules) newPlan() *plan { return &plan{modules: m, at: map[string]int{}} }

// want adds modules that somebody asked for.
func (p *plan) want(wishes []wish) error {
	for _, w := range wishes {
		name := moduleName(w.name)
		switch {
		case p.path[name] != "":
			p.add(name, false)
			p.out[p.at[name]].Params = w.params
		case !p.builtin[name]:
			return fmt.Errorf("kernel module %s: this kernel has none", w.name)
		case w.params != "":
			return fmt.Errorf("kernel module %s is built in: give %q with -append", w.name, w.params)
		}
	}
	return nil
}

// add adds a module after those it needs. An optional one may fail to load.
func (p *plan) add(name string, optional bool) {
	if i, known := p.at[name]; known {
		p.out[i].Optional = p.out[i].Optional && optional
		return
	}
	if p.path[name] == "" {
		return
	}
	for _, need := range p.needs[name] {
		p.add(need, optional)
	}
	for _, soft := range p.before[name] {
		for _, real := range append([]string{soft}, p.alias[soft]...) {
			if real != name {
				p.add(real, true)
			}
		}
	}
	p.at[name] = len(p.out)
	p.paths = append(p.paths, p.path[name])
	p.out = append(p.out, spec.Module{File: name + ".ko", Optional: optional})
}
