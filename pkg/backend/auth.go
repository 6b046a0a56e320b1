package backend

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Check refuses secrets of the other transport, and half of a pair. It quotes none
// (I10).
func (a Auth) Check(t Transport) error {
	if (t != ISCSI && a.CHAP != CHAP{}) || (t != NVMe && a.DHCHAP != DHCHAP{}) {
		return fmt.Errorf("%w: secrets of another transport than %q", ErrInvalid, clip(string(t)))
	}
	if err := a.CHAP.check(); err != nil {
		return err
	}
	return a.DHCHAP.check()
}

func (c CHAP) check() error {
	if (c.User == "") != (c.Secret == "") || (c.MutualUser == "") != (c.MutualSecret == "") {
		return fmt.Errorf("%w: CHAP: a user needs a secret, and a secret a user", ErrInvalid)
	}
	if c.MutualUser != "" && c.User == "" {
		return fmt.Errorf("%w: CHAP: a mutual secret only goes with one of the node", ErrInvalid)
	}
	for _, s := range []string{c.User, string(c.Secret), c.MutualUser, string(c.MutualSecret)} {
		if len(s) > MaxSecret || !printable(s) {
			return fmt.Errorf("%w: CHAP: users and secrets are up to %d bytes of printable text", ErrInvalid, MaxSecret)
		}
	}
	return nil
}

func (d DHCHAP) check() error {
	if d.Controller != "" && d.Host == "" {
		return fmt.Errorf("%w: DH-HMAC-CHAP: a secret of the controller only goes with one of the host", ErrInvalid)
	}
	for _, s := range []string{string(d.Host), string(d.Controller)} {
		if s != "" && (len(s) > MaxSecret || !strings.HasPrefix(s, "DHHC-1:") || !printable(s)) {
			return fmt.Errorf("%w: DH-HMAC-CHAP: a secret has the form DHHC-1:..., up to %d bytes", ErrInvalid, MaxSecret)
		}
	}
	return nil
}

// printable: UTF-8 without control characters, which would end a line in configfs.
func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}
