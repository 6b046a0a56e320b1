package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// calls finds uses of the named package's functions in a file.
func calls(s *source, importPath string, match func(name string) bool) []string {
	local := localName(s, importPath)
	if local == "" {
		return nil
	}
	var out []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == local && match(sel.Sel.Name) {
			out = append(out, fmt.Sprintf("%s:%d: %s.%s", s.path, s.line(sel.Pos()), local, sel.Sel.Name))
		}
		return true
	})
	return out
}

// localName is the name a file knows an import by, "" if it does not import it.
func localName(s *source, importPath string) string {
	for i, p := range s.imports() {
		if p != importPath {
			continue
		}
		if n := s.file.Imports[i].Name; n != nil {
			return n.Name
		}
		return p[strings.LastIndexByte(p, '/')+1:]
	}
	return ""
}

func explain(findings []string, why string) []string {
	for i := range findings {
		findings[i] += ": " + why
	}
	return findings
}

var rawAtomic = regexp.MustCompile(`^(Add|Load|Store|Swap|CompareAndSwap|And|Or)[A-Z]`)

func atomicFindings(s *source) []string {
	return explain(calls(s, "sync/atomic", rawAtomic.MatchString),
		"use a typed atomic (atomic.Uint64): its alignment and every access are safe by construction")
}

// sleepFindings: in a synctest bubble a sleep takes no time and is exact.
func sleepFindings(s *source) []string {
	if !s.isTest() || localName(s, "testing/synctest") != "" {
		return nil
	}
	return explain(calls(s, "time", func(n string) bool { return n == "Sleep" }),
		"wait for the event itself, or use testing/synctest")
}

var skipCall = regexp.MustCompile(`\b(t|b|f|tb)\.(Skip|Skipf|SkipNow)\(`)

func skipFindings(s *source) []string {
	if !s.isTest() || s.pkg() == "pkg/archtest" || !skipCall.MatchString(s.text) {
		return nil
	}
	return []string{s.path + ": a test skips: it must fail when what it needs is missing"}
}

var vague = []string{"util", "utils", "common", "helper", "helpers", "misc", "shared", "base"}

func nameFindings(s *source) []string {
	if slices.Contains(vague, s.file.Name.Name) {
		return []string{fmt.Sprintf("%s: package name %q says nothing: name it after what it does", s.path, s.file.Name.Name)}
	}
	return nil
}

func formatFindings(s *source) []string {
	out, err := format.Source([]byte(s.text))
	if err != nil || !bytes.Equal(out, []byte(s.text)) {
		return []string{s.path + ": not gofmt-ed"}
	}
	return nil
}

// unfinished and foreign are put together from parts, so that this file passes
// its own rule.
var (
	unfinished = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)
	foreign    = regexp.MustCompile(`(^|[^a-zA-Z0-9_.])/(ro` + `ot|ho` + `me|wo` + `rk)/`)
)

func textFindings(path, text string) []string {
	var out []string
	for i, line := range strings.Split(text, "\n") {
		if m := unfinished.FindString(line); m != "" {
			out = append(out, fmt.Sprintf("%s:%d: %s: finish it, or write it into docs/limitations.md", path, i+1, m))
		}
		if m := foreign.FindString(line); m != "" {
			out = append(out, fmt.Sprintf("%s:%d: a path of somebody's machine: %s", path, i+1, m))
		}
	}
	return out
}

func TestAtomicsAreTyped(t *testing.T) { checkAll(t, atomicFindings) }

func TestTestsDoNotSleep(t *testing.T) { checkAll(t, sleepFindings) }

func TestTestsDoNotSkip(t *testing.T) { checkAll(t, skipFindings) }

func TestPackageNamesSaySomething(t *testing.T) { checkAll(t, nameFindings) }

func TestFilesAreGofmted(t *testing.T) { checkAll(t, formatFindings) }

func TestNothingIsLeftUnfinished(t *testing.T) {
	for _, f := range files(t, ".go", ".md", ".sh", ".mk", ".yml", ".yaml", "Makefile", "Dockerfile", ".ci/run") {
		for _, finding := range textFindings(f, read(t, f)) {
			t.Error(finding)
		}
	}
}

func TestTheWordRulesBite(t *testing.T) {
	for name, c := range map[string]struct {
		rule func(*source) []string
		path string
		text string
	}{
		"raw atomic":     {atomicFindings, "x.go", "package x\nimport \"sync/atomic\"\nvar v uint64\nvar _ = atomic.AddUint64(&v, 1)\n"},
		"renamed atomic": {atomicFindings, "x.go", "package x\nimport a \"sync/atomic\"\nvar v uint64\nvar _ = a.LoadUint64(&v)\n"},
		"sleep":          {sleepFindings, "x_test.go", "package x\nimport \"time\"\nfunc f() { time.Sleep(1) }\n"},
		"skip":           {skipFindings, "x_test.go", "package x\nfunc f() { t.Skip(\"no root\") }\n"},
		"vague name":     {nameFindings, "x.go", "package utils\n"},
		"not formatted":  {formatFindings, "x.go", "package x\nfunc  f() {}\n"},
		"unfinished":     {func(s *source) []string { return textFindings(s.path, s.text) }, "x.go", "package x // TO" + "DO: later\n"},
		"foreign path":   {func(s *source) []string { return textFindings(s.path, s.text) }, "x.go", "package x // see /ro" + "ot/x\n"},
	} {
		if got := c.rule(mustParse(t, c.path, c.text)); len(got) != 1 {
			t.Errorf("%s: got %v, want one finding", name, got)
		}
	}
	typed := "package x\nimport \"sync/atomic\"\nvar v atomic.Uint64\nvar _ = v.Add(1)\n"
	if got := atomicFindings(mustParse(t, "x.go", typed)); len(got) != 0 {
		t.Errorf("a typed atomic: got %v", got)
	}
}
