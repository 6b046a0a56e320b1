package configfs

import (
	"fmt"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// Path is a place in a tree, from its root; "" is the root. It is made with Add,
// which is where names that came from elsewhere become directories: one that is
// no name spoils the path, and everything refuses a spoiled path.
type Path string

// spoiled marks a path that holds something which is no name.
const spoiled = "\x00"

// Add is the path of something below p.
func (p Path) Add(names ...string) Path {
	for _, n := range names {
		switch {
		case strings.HasPrefix(string(p), spoiled):
			return p
		case !validName(n):
			return Path(spoiled + n)
		case p == "":
			p = Path(n)
		default:
			p += Path("/" + n)
		}
	}
	return p
}

// Parent is the path without its last name; that of the root is the root.
func (p Path) Parent() Path {
	i := strings.LastIndexByte(string(p), '/')
	return p[:max(i, 0)]
}

// Name is the last name.
func (p Path) Name() string { return string(p[strings.LastIndexByte(string(p), '/')+1:]) }

// Check refuses a path that was made of something which is no name.
func (p Path) Check() error {
	bad, is := strings.CutPrefix(string(p), spoiled)
	if !is {
		return nil
	}
	return fmt.Errorf("%w: %.80q cannot be a directory of configfs: want 1..%d printable bytes without slash, and not . or ..", backend.ErrInvalid, bad, maxName)
}

// validName: printable ASCII without a slash, not hidden or a way up.
func validName(n string) bool {
	if n == "" || len(n) > maxName || n[0] == '.' {
		return false
	}
	for i := range len(n) {
		if n[i] <= ' ' || n[i] > '~' || n[i] == '/' {
			return false
		}
	}
	return true
}
