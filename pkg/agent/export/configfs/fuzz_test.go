package configfs

import (
	"path"
	"strings"
	"testing"
)

// Whatever a name is, a path made with it is one level further down, or spoiled.
func FuzzANameStaysInItsDirectory(f *testing.F) {
	for _, n := range []string{"a", "..", ".", "", "a/b", "../..", "nqn.2025-01.io.csi-mpath:vol:0", "[::1]:3260", "\x00", "a\n"} {
		f.Add(n)
	}
	f.Fuzz(func(t *testing.T, name string) {
		p := Path("acls").Add(name)
		if p.Check() != nil {
			if q := p.Add("x"); q.Check() == nil {
				t.Errorf("%q: %q came back to life", name, q)
			}
			return
		}
		if clean := path.Clean(string(p)); clean != string(p) || path.Dir(clean) != "acls" || p.Name() != name || p.Parent() != "acls" || strings.ContainsAny(name, "/\x00\n") {
			t.Errorf("%q became %q", name, p)
		}
	})
}
