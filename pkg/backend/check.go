package backend

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// What a request may say. Every backend refuses the same requests, in the same
// words: these checks come before anything else, and need no state.

// Check refuses what no backend may accept.
func (r CreateVolume) Check() error {
	if err := checkName("volume", r.Name); err != nil {
		return err
	}
	if err := CheckPool(r.Pool); err != nil {
		return err
	}
	if err := r.Size.Check(); err != nil {
		return fmt.Errorf("volume %q: %w", clip(r.Name), err)
	}
	if err := r.Source.Check(); err != nil {
		return err
	}
	return CheckTunables(r.Tunables)
}

// Check refuses a source that is both, or not named as an object of its kind.
func (s Source) Check() error {
	switch {
	case s.IsZero():
		return nil
	case !s.Volume.IsZero() && !s.Snapshot.IsZero():
		return fmt.Errorf("%w: a source is a volume or a snapshot, not both", ErrInvalid)
	case !s.Volume.IsZero():
		return s.Volume.Check()
	default:
		return s.Snapshot.Check()
	}
}

// Check refuses sizes below zero.
func (s Size) Check() error {
	if s.Required < 0 || s.Limit < 0 {
		return fmt.Errorf("%w: size of %d bytes with limit %d: want 0 or more", ErrInvalid, s.Required, s.Limit)
	}
	return nil
}

// Check refuses what no backend may accept.
func (r CreateSnapshot) Check() error {
	if err := checkName("snapshot", r.Name); err != nil {
		return err
	}
	return r.Of.Check()
}

// Check refuses what no backend may accept.
func (r Publish) Check() error {
	if err := r.Volume.Check(); err != nil {
		return err
	}
	if err := CheckNode(r.Node); err != nil {
		return err
	}
	if err := CheckInitiator(r.Transport, r.Initiator); err != nil {
		return err
	}
	return r.Auth.Check(r.Transport)
}

// checkName: names are texts, which any part of a name that came as bytes is not.
func checkName(what, name string) error {
	if name == "" || len(name) > MaxName {
		return fmt.Errorf("%w: the name of a %s has 1..%d bytes, not %d", ErrInvalid, what, MaxName, len(name))
	}
	if !utf8.ValidString(name) {
		return fmt.Errorf("%w: the name of a %s, %q, is not UTF-8", ErrInvalid, what, clip(name))
	}
	return nil
}

// CheckPool refuses what is no name of a pool.
func CheckPool(name string) error {
	if !ValidName(name, MaxPool) {
		return fmt.Errorf("%w: pool name %q: want 1..%d of a-z, 0-9 and inner hyphens", ErrInvalid, clip(name), MaxPool)
	}
	return nil
}

// CheckNode refuses what is no name of a node: 1..MaxNode letters, digits, and
// inner dots, hyphens and underscores.
func CheckNode(name string) error {
	if name == "" || len(name) > MaxNode || !only(name[:1]+name[len(name)-1:], "") || !only(name, "._-") {
		return fmt.Errorf("%w: node name %q: want 1..%d letters, digits, and inner '.', '_', '-'", ErrInvalid, clip(name), MaxNode)
	}
	return nil
}

// CheckInitiator refuses what is no base name of a node for this transport: an
// iSCSI name in lower case (RFC 7143 4.2.7, as targets compare it), or an NQN. It
// becomes the name of a directory: no slash, no dots alone.
func CheckInitiator(t Transport, name string) error {
	prefixes, what := []string{"iqn.", "naa.", "eui."}, "iSCSI name in lower case"
	switch t {
	case ISCSI:
	case NVMe:
		prefixes, what = []string{"nqn."}, "NQN"
	default:
		return fmt.Errorf("%w: transport %q: want %q or %q", ErrInvalid, clip(string(t)), ISCSI, NVMe)
	}
	ok := len(name) <= MaxInitiator && only(name, ".-:_") && (t == NVMe || strings.ToLower(name) == name)
	for _, p := range prefixes {
		if ok && strings.HasPrefix(name, p) && len(name) > len(p) {
			return nil
		}
	}
	return fmt.Errorf("%w: initiator name %q: want an %s of at most %d bytes", ErrInvalid, clip(name), what, MaxInitiator)
}

// only reports whether s is ASCII letters, digits and bytes of more.
func only(s, more string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && !strings.Contains(more, string(rune(c))) {
			return false
		}
	}
	return true
}

// CheckTunables bounds what is kept with a volume.
func CheckTunables(t map[string]string) error {
	bytes := 0
	for k, v := range t {
		if k == "" || !utf8.ValidString(k) || !utf8.ValidString(v) {
			return fmt.Errorf("%w: tunable %q is not a text, or has no name", ErrInvalid, clip(k))
		}
		bytes += len(k) + len(v)
	}
	if len(t) > MaxTunables || bytes > MaxTunablesBytes {
		return fmt.Errorf("%w: %d tunables of %d bytes, at most %d of %d", ErrInvalid, len(t), bytes, MaxTunables, MaxTunablesBytes)
	}
	return nil
}
