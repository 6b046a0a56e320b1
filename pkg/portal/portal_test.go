package portal

import (
	"net"
	"strings"
	"testing"
)

func TestPortalsGetTheirPort(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.1":         "10.0.0.1:3260",
		"10.0.0.1:3261":    "10.0.0.1:3261",
		" array.example ":  "array.example:3260",
		"[2001:db8::1]":    "[2001:db8::1]:3260",
		"2001:db8::1":      "[2001:db8::1]:3260",
		"[2001:db8::1]:42": "[2001:db8::1]:42",
	} {
		if got, err := Normalize(in, ISCSIPort); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", in, got, err, want)
		}
	}
}

func TestWhatIsNoPortalIsRefused(t *testing.T) {
	for _, in := range []string{"", ":3260", "a:0", "a:65536", "a:b", "a b", "a/b", "[::1", "::1]:3", "1:2:3:x", "a:http", strings.Repeat("a", 256)} {
		if got, err := Normalize(in, ISCSIPort); err == nil {
			t.Errorf("%q was taken as %q", in, got)
		}
	}
}

func FuzzNormalize(f *testing.F) {
	for _, s := range []string{"a", "a:1", "[::1]:2", "::1", "x:y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := Normalize(s, NVMePort)
		if err != nil {
			return
		}
		if again, err := Normalize(got, ISCSIPort); err != nil || again != got {
			t.Errorf("%q became %q, which becomes %q (%v)", s, got, again, err)
		}
		if _, _, err := net.SplitHostPort(got); err != nil {
			t.Errorf("%q became %q: %v", s, got, err)
		}
	})
}
