package volume

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/mount"
)

// checkVolume refuses what is no volume's ID.
func checkVolume(id string) error {
	if id == "" || len(id) > maxVolume || strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return fmt.Errorf("%w: volume ID %q: want 1 to %d bytes without control characters", ErrInvalid, clip(id), maxVolume)
	}
	return nil
}

// checkPath wants an absolute path without detours.
func checkPath(what, p string) error {
	if !filepath.IsAbs(p) || filepath.Clean(p) != p || p == "/" || len(p) > maxPath || strings.ContainsRune(p, 0) {
		return fmt.Errorf("%w: %s %q: want an absolute path without detours, of up to %d bytes", ErrInvalid, what, clip(p), maxPath)
	}
	return nil
}

// check refuses a use that cannot be.
func (u use) check() error {
	if err := checkPath("staging path", u.Staging); err != nil {
		return err
	}
	if u.Block {
		if u.FSType != "" || len(u.Options) > 0 || len(u.Mkfs) > 0 {
			return fmt.Errorf("%w: a raw block volume has no file system", ErrInvalid)
		}
		return nil
	}
	if u.FSType != mount.Ext4 && u.FSType != mount.XFS {
		return fmt.Errorf("%w: file system %q: use %s or %s", ErrInvalid, clip(u.FSType), mount.Ext4, mount.XFS)
	}
	if len(u.Options) > maxOptions || len(u.Mkfs) > maxOptions {
		return fmt.Errorf("%w: %d mount options and %d of mkfs, at most %d each", ErrInvalid, len(u.Options), len(u.Mkfs), maxOptions)
	}
	for _, o := range u.Options {
		if o == "" || len(o) > maxOptionBytes || strings.ContainsAny(o, ",\x00\n") {
			return fmt.Errorf("%w: mount option %q: want one option of up to %d bytes, without commas", ErrInvalid, clip(o), maxOptionBytes)
		}
	}
	return nil
}

// check bounds secrets. Errors never quote a value (I10).
func (s Secrets) check() error {
	size := 0
	for k, v := range s {
		size += len(k) + len(v)
	}
	if len(s) > maxSecrets || size > maxSecretBytes {
		return fmt.Errorf("%w: %d secrets of %d bytes, at most %d of %d", ErrInvalid, len(s), size, maxSecrets, maxSecretBytes)
	}
	return nil
}
