// Package strictyaml reads a configuration: a document in, checked values out. It
// opens no file.
//
// A key that its reader does not know, a key given twice, a second document, a
// value of the wrong kind or out of range is an error that names the key's path,
// such as targets[0].luns[1].blockSize. The first error counts; what is read after
// it is zero.
package strictyaml

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// reader remembers the first error; what is read after it is zero.
type reader struct{ err error }

// Node is one value with its path.
type Node struct {
	r    *reader
	path string
	v    any // nil: not given
}

// Err is the first error of the whole document.
func (n Node) Err() error { return n.r.err }

// Path is where the value is.
func (n Node) Path() string { return n.path }

// Parse reads one document (YAML, or JSON, which is YAML) of up to most bytes.
func Parse(b []byte, most int) (Node, error) {
	if len(b) > most {
		return Node{}, fmt.Errorf("longer than %d bytes", most)
	}
	if err := oneDocument(b); err != nil {
		return Node{}, err
	}
	j, err := yaml.YAMLToJSONStrict(b)
	if err != nil {
		return Node{}, err
	}
	d := json.NewDecoder(bytes.NewReader(j))
	d.UseNumber()
	n := Node{r: &reader{}}
	if err := d.Decode(&n.v); err != nil {
		return Node{}, err
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

// Fail keeps the first error.
func (n Node) Fail(format string, args ...any) {
	if n.r.err == nil {
		where := n.path
		if where == "" {
			where = "the file"
		}
		n.r.err = fmt.Errorf("%s: %s", where, fmt.Sprintf(format, args...))
	}
}

// Given reports whether there is a value.
func (n Node) Given() bool { return n.v != nil }

// Key is a value of a mapping; there may be none.
func (n Node) Key(name string) Node {
	m, _ := n.v.(map[string]any)
	path := name
	if n.path != "" {
		path = n.path + "." + name
	}
	return Node{n.r, path, m[name]}
}

// Object wants a mapping with no other keys than these.
func (n Node) Object(known ...string) {
	m, ok := n.v.(map[string]any)
	if !ok {
		n.Fail("is %s, want %s", kind(n.v), strings.Join(known, ", "))
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
		n.Key(Cut(strange[0])).Fail("unknown key; known here: %s", strings.Join(known, ", "))
	}
}

// Names are the keys, sorted, of a mapping of up to most that has names for keys.
func (n Node) Names(most int) []string {
	if !n.Given() {
		return nil
	}
	m, ok := n.v.(map[string]any)
	if !ok || len(m) > most {
		n.Fail("is %s, want a mapping of up to %d", kind(n.v), most)
		return nil
	}
	return slices.Sorted(maps.Keys(m))
}

// List is the elements of a list of up to most.
func (n Node) List(most int) (out []Node) {
	if !n.Given() {
		return nil
	}
	l, ok := n.v.([]any)
	if !ok || len(l) > most {
		n.Fail("is %s, want a list of up to %d", kind(n.v), most)
		return nil
	}
	for i, v := range l {
		out = append(out, Node{n.r, fmt.Sprintf("%s[%d]", n.path, i), v})
	}
	return out
}

// Text is a string of up to most bytes without control characters.
func (n Node) Text(most int) string {
	if !n.Given() {
		return ""
	}
	s, ok := n.v.(string)
	switch {
	case !ok:
		n.Fail("is %s, want a text: put it in quotes", kind(n.v))
	case s == "" || len(s) > most:
		n.Fail("has %d bytes, want 1 to %d", len(s), most)
	case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }):
		n.Fail("has control characters")
	default:
		return s
	}
	return ""
}

// Flag is true or false; false when not given.
func (n Node) Flag() bool {
	b, ok := n.v.(bool)
	if n.Given() && !ok {
		n.Fail("is %s, want true or false", kind(n.v))
	}
	return b
}

// Number is an integer lo..hi, or def when not given.
func (n Node) Number(lo, hi, def uint64) uint64 {
	if !n.Given() {
		return def
	}
	num, ok := n.v.(json.Number)
	v, err := strconv.ParseUint(string(num), 10, 64)
	if !ok || err != nil || v < lo || v > hi {
		n.Fail("is %s, want a number %d to %d", kind(n.v), lo, hi)
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

// Size is a number of bytes, 1..most: 512Mi, 1G or 1048576; 0 when not given.
func (n Node) Size(most uint64) uint64 {
	if !n.Given() {
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
	n.Fail("is %s, want a size like 512Mi or 10Gi, up to %d bytes", kind(n.v), most)
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
		return "the number " + Cut(string(v))
	case string:
		return strconv.Quote(Cut(v))
	case []any:
		return fmt.Sprintf("a list of %d", len(v))
	}
	return "a mapping"
}

// Cut is as much of a wrong value as an error may quote.
func Cut(s string) string { return s[:min(len(s), shownMost)] }

// Want is a key that must be given.
func (n Node) Want(key string) Node {
	k := n.Key(key)
	if !k.Given() {
		k.Fail("is missing")
	}
	return k
}

// AbsPath is the absolute path of a file: a daemon's directory is nobody's
// business. "" when not given.
func (n Node) AbsPath() string {
	p := n.Text(maxPath)
	if p != "" && (!path.IsAbs(p) || path.Clean(p) != p) {
		n.Fail("%q is no absolute path in its shortest form", Cut(p))
	}
	return p
}

// Address is IP:port, or IP with this port; invalid when not given.
func (n Node) Address(port uint16) netip.AddrPort {
	s := n.Text(maxPath)
	if s == "" {
		return netip.AddrPort{}
	}
	if a, err := netip.ParseAddrPort(s); err == nil {
		return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
	}
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	if err != nil {
		n.Fail("%q is neither IP:port nor [IPv6]:port", Cut(s))
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a.Unmap(), port)
}

// Choice is the one of these that the text is, by the name that it prints.
func Choice[S fmt.Stringer](n Node, all ...S) (none S) {
	s := n.Text(maxPath)
	var names []string
	for _, v := range all {
		if v.String() == s {
			return v
		}
		names = append(names, v.String())
	}
	n.Fail("is %s, want one of %s", kind(n.v), strings.Join(names, ", "))
	return none
}

// Door is where a server listens, and what others are told if that is not it
// (invalid then): every address of a machine is nothing to connect to.
func Door(listen, advertise Node, port uint16) (at, tell netip.AddrPort) {
	at = listen.Address(port)
	if advertise.Given() {
		if tell = advertise.Address(port); tell.IsValid() && (tell.Addr().IsUnspecified() || tell.Port() == 0) {
			advertise.Fail("%s is no address to connect to", tell)
		}
	} else if at.IsValid() && at.Addr().IsUnspecified() {
		listen.Fail("%s is every address of the machine: say in 'advertise' which one others are told", at)
	}
	return at, tell
}

// Seen refuses what is given twice: it has the places of values.
type Seen map[string]string

// Once fails at n if v is known, which errors call what.
func (s Seen) Once(n Node, what, v string) {
	if at, ok := s[v]; ok {
		n.Fail("%s is also that of %s", what, at)
	}
	s[v] = n.path
}
