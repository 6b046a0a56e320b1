package mount

import (
	"path/filepath"
	"slices"
	"strings"
)

// check refuses a malformed request before anything is touched. Who mounts with
// "ro" means ReadOnly.
func (r *Request) check() error {
	switch {
	case r.Volume == "" || len(r.Volume) > MaxVolume:
		return invalid("a volume's name has 1 to %d bytes, not %d", MaxVolume, len(r.Volume))
	case r.FSType != Ext4 && r.FSType != XFS:
		return invalid("file system %q is neither %s nor %s", r.FSType, Ext4, XFS)
	}
	for _, path := range []string{r.Device, r.Target} {
		if err := checkPath(path); err != nil {
			return err
		}
	}
	r.ReadOnly = r.ReadOnly || slices.Contains(r.MountOptions, "ro")
	for _, list := range [][]string{r.MkfsOptions, r.MountOptions} {
		if err := checkOptions(list); err != nil {
			return err
		}
	}
	return nil
}

// checkPath: absolute, clean and printable in the kernel's table.
func checkPath(path string) error {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" || len(path) > MaxPath || strings.ContainsRune(path, 0) {
		return invalid("%q is no absolute path, or not a clean one", path)
	}
	return nil
}

func checkOptions(list []string) error {
	if len(list) > MaxOptions {
		return invalid("%d options, %d are possible", len(list), MaxOptions)
	}
	for _, o := range list {
		if o == "" || len(o) > MaxOption || strings.ContainsFunc(o, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return invalid("%.100q is no option", o)
		}
	}
	return nil
}
