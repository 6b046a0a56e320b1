package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// reader remembers the first error; what is read after it is zero.
type reader struct{ err error }

// node is one value with its path.
type node struct {
	r    *reader
	path string
	v    any // nil: not given
}

// parseYAML reads one document.
func parseYAML(b []byte) (node, error) {
	if len(b) > MaxFile {
		return node{}, fmt.Errorf("longer than %d bytes", MaxFile)
	}
	if err := oneDocument(b); err != nil {
		return node{}, err
	}
	j, err := yaml.YAMLToJSONStrict(b)
	if err != nil {
		return node{}, err
	}
	d := json.NewDecoder(bytes.NewReader(j))
	d.UseNumber()
	n := node{r: &reader{}}
	if err := d.Decode(&n.v); err != nil {
		return node{}, err
	}
	return n, nil
}

// oneDocument refuses what the YAML package would leave out in silence. A line
// that begins like this is a marker wherever it is (YAML 1.1, 9.1).
func oneDocument(b []byte) error {
	begun := false
	for i, line := range strings.Split(string(b), "\n") {
		marker := strings.HasPrefix(line, "---") || strings.HasPrefix(line, "...")
		if marker && begun {
			return fmt.Errorf("line %d: a second document begins: one file holds one configuration", i+1)
		}
		if t := strings.TrimSpace(line); t != "" && t[0] != '#' && t[0] != '%' {
			begun = true
		}
	}
	return nil
}

// fail keeps the first error.
func (n node) fail(format string, args ...any) {
	if n.r.err == nil {
		where := n.path
		if where == "" {
			where = "the file"
		}
		n.r.err = fmt.Errorf("%s: %s", where, fmt.Sprintf(format, args...))
	}
}

func (n node) given() bool { return n.v != nil }

func (n node) key(name string) node {
	m, _ := n.v.(map[string]any)
	path := name
	if n.path != "" {
		path = n.path + "." + name
	}
	return node{n.r, path, m[name]}
}

// object wants a mapping with no other keys than these.
func (n node) object(known ...string) {
	m, ok := n.v.(map[string]any)
	if !ok {
		n.fail("is %s, want %s", kind(n.v), strings.Join(known, ", "))
		return
	}
	var strange []string
	for k := range m {
		if !slices.Contains(known, k) {
			strange = append(strange, k)
		}
	}
	if len(strange) > 0 {
		slices.Sort(strange)
		n.key(cut(strange[0])).fail("unknown key; known here: %s", strings.Join(known, ", "))
	}
}

// list is the elements of a list of up to most.
func (n node) list(most int) (out []node) {
	if !n.given() {
		return nil
	}
	l, ok := n.v.([]any)
	if !ok || len(l) > most {
		n.fail("is %s, want a list of up to %d", kind(n.v), most)
		return nil
	}
	for i, v := range l {
		out = append(out, node{n.r, fmt.Sprintf("%s[%d]", n.path, i), v})
	}
	return out
}

// text is a string of up to most bytes without control characters.
func (n node) text(most int) string {
	if !n.given() {
		return ""
	}
	s, ok := n.v.(string)
	switch {
	case !ok:
		n.fail("is %s, want a text: put it in quotes", kind(n.v))
	case s == "" || len(s) > most:
		n.fail("has %d bytes, want 1 to %d", len(s), most)
	case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }):
		n.fail("has control characters")
	default:
		return s
	}
	return ""
}

func (n node) flag() bool {
	b, ok := n.v.(bool)
	if n.given() && !ok {
		n.fail("is %s, want true or false", kind(n.v))
	}
	return b
}

// number is an integer lo..hi, or def when not given.
func (n node) number(lo, hi, def uint64) uint64 {
	if !n.given() {
		return def
	}
	num, ok := n.v.(json.Number)
	v, err := strconv.ParseUint(string(num), 10, 64)
	if !ok || err != nil || v < lo || v > hi {
		n.fail("is %s, want a number %d to %d", kind(n.v), lo, hi)
		return 0
	}
	return v
}

// units are the factors of sizes, as in Kubernetes.
var units = []struct {
	suffix string
	factor uint64
}{{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40},
	{"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"", 1}}

// size is a number of bytes, 1..most: 512Mi, 1G or 1048576; 0 when not given.
func (n node) size(most uint64) uint64 {
	if !n.given() {
		return 0
	}
	text := ""
	switch v := n.v.(type) {
	case string:
		text = v
	case json.Number:
		text = string(v)
	}
	for _, u := range units {
		digits, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		v, err := strconv.ParseUint(digits, 10, 64)
		if err == nil && v > 0 && v <= math.MaxUint64/u.factor && v*u.factor <= most {
			return v * u.factor
		}
		break
	}
	n.fail("is %s, want a size like 512Mi or 10Gi, up to %d bytes", kind(n.v), most)
	return 0
}

// kind describes a value for an error.
func kind(v any) string {
	switch v := v.(type) {
	case nil:
		return "empty"
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		return "the number " + cut(string(v))
	case string:
		return strconv.Quote(cut(v))
	case []any:
		return fmt.Sprintf("a list of %d", len(v))
	}
	return "a mapping"
}

func cut(s string) string { return s[:min(len(s), shownMost)] }
