package store

import (
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// CheckName refuses what is no name of an object: names become those of files
// and of logical volumes, and stores check them right there.
func CheckName(name string) error {
	if !backend.ValidName(name, backend.MaxObject) {
		return fmt.Errorf("%w: object name %.80q: want 1..%d of a-z, 0-9 and inner hyphens", backend.ErrInvalid, name, backend.MaxObject)
	}
	return nil
}

// Check refuses specifications that no store may accept.
func (s Spec) Check() error {
	if err := CheckName(s.Name); err != nil {
		return err
	}
	if s.Source != "" {
		if err := CheckName(s.Source); err != nil {
			return err
		}
	}
	if s.Source == s.Name {
		return fmt.Errorf("%w: object %s as a copy of itself", backend.ErrInvalid, s.Name)
	}
	return s.Labels.Check()
}

// Check bounds labels: what is kept must be readable again.
func (l Labels) Check() error {
	switch {
	case !backend.ValidName(l.Tenant, backend.MaxObject):
		return fmt.Errorf("%w: tenant %.80q: want 1..%d of a-z, 0-9 and inner hyphens", backend.ErrInvalid, l.Tenant, backend.MaxObject)
	case l.Name == "" || len(l.Name) > backend.MaxName || !utf8.ValidString(l.Name):
		return fmt.Errorf("%w: name %.140q: want a text of 1..%d bytes", backend.ErrInvalid, l.Name, backend.MaxName)
	case !identity(l.Identity):
		return fmt.Errorf("%w: identity %.40q: want 32 lower-case hexadecimal digits", backend.ErrInvalid, l.Identity)
	case l.Generation < 0:
		return fmt.Errorf("%w: generation %d", backend.ErrInvalid, l.Generation)
	}
	if !l.Source.IsZero() {
		if err := l.Source.Check(); err != nil {
			return err
		}
	}
	return backend.CheckTunables(l.Tunables)
}

func identity(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil && len(s) == 32 && strings.ToLower(s) == s
}

// Fit is the size that an object gets which is to have at least size bytes and is
// a copy of one with source bytes (0 for none). backend.ErrRange if there is none.
func (f Features) Fit(size, source int64) (int64, error) {
	if size <= 0 && source == 0 {
		return 0, fmt.Errorf("%w: an object of %d bytes", backend.ErrRange, size)
	}
	return backend.Pool{Name: "of this store", Step: f.Step, Min: f.Min, Max: f.Max}.Fit(backend.Size{Required: size}, source)
}
