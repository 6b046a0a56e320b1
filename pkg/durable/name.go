package durable

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
)

// maxReadable bounds the part of a FileName that people recognize, bytes.
const maxReadable = 32

// FileName makes any name a file name: readable, short, another for each.
func FileName(name string) string {
	sum := sha256.Sum256([]byte(name))
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		}
		return '-'
	}, name)
	if len(clean) > maxReadable {
		clean = clean[len(clean)-maxReadable:]
	}
	return clean + "-" + hex.EncodeToString(sum[:4])
}

// BootID is this boot of the machine; empty where the kernel does not tell. What
// is true until the next boot only is written down with it.
func BootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}
