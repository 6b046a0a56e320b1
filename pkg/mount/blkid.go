package mount

import (
	"fmt"
	"strings"
)

// tags is what blkid says of a device in its low-level form.
type tags struct {
	fsType    string // TYPE: "ext4", "LVM2_member", "crypto_LUKS", …
	usage     string // USAGE: "filesystem", "raid", "crypto", "other"
	table     string // PTTYPE: "gpt", "dos", …
	ambiguous bool   // several of them, and blkid does not choose
}

// maxTag is the longest value that is kept; what blkid knows is shorter.
const maxTag = 64

// readTags reads the output of blkid -p -o export: NAME=value, a line each.
func readTags(out []byte) (t tags) {
	for line := range strings.Lines(string(out)) {
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if !ok || !plain(value) {
			continue
		}
		switch name {
		case "TYPE":
			t.fsType = value
		case "USAGE":
			t.usage = value
		case "PTTYPE":
			t.table = value
		}
	}
	return t
}

// plain: blkid's names are letters, digits and a few signs. Others would come from
// the Device, and have no business in errors.
func plain(s string) bool {
	if s == "" || len(s) > maxTag {
		return false
	}
	for _, r := range s {
		if (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && !strings.ContainsRune("_-.+", r) {
			return false
		}
	}
	return true
}

// String names what was found, for errors.
func (t tags) String() string {
	var found []string
	if t.fsType != "" {
		kind := t.usage
		if kind == "" {
			kind = "signature"
		}
		found = append(found, fmt.Sprintf("%s (%s)", t.fsType, kind))
	}
	if t.table != "" {
		found = append(found, "a partition table ("+t.table+")")
	}
	switch {
	case t.ambiguous:
		return "signatures of several kinds"
	case len(found) == 0:
		return "data of no kind that blkid knows"
	}
	return strings.Join(found, " and ")
}
