package mount

import (
	"context"
	"fmt"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/program"
)

// The bits of e2fsck's exit code (e2fsck(8)).
const (
	fsckCorrected   = 1
	fsckReboot      = 2 // of a mounted root; ours is not mounted
	fsckUncorrected = 4
)

// check makes an ext4 that nobody has mounted fit for mounting, as far as that
// needs no decision: the journal is replayed, and what e2fsck -p corrects on its
// own is corrected. More is for a human: no -y, ever (case D-17).
//
// XFS is checked by mounting it, which replays its log; xfs_repair -L would throw
// the log away, and is never run.
func (h *Host) check(ctx context.Context, d Device, force bool) (repaired bool, messages []string, err error) {
	args := []string{"-p", d.Path}
	if force {
		args = []string{"-f", "-p", d.Path}
	}
	r, err := h.program(ctx, program.Call{Name: "e2fsck", Args: args}, d.Number)
	if err != nil {
		return false, nil, err
	}
	messages = sayings(r)
	switch code := r.Code; {
	case code&^(fsckCorrected|fsckReboot) == 0:
		return code != 0, messages, nil
	case code&fsckUncorrected != 0:
		return false, messages, fmt.Errorf("%w: e2fsck -p on %s left errors uncorrected (exit code %d): %s; save what the volume holds, then run e2fsck on it by hand",
			ErrDamaged, d.Path, code, strings.Join(messages, "; "))
	}
	return false, messages, fmt.Errorf("e2fsck on %s could not do its work (exit code %d): %s", d.Path, r.Code, strings.Join(messages, "; "))
}

// sayings are the first lines of what a checker printed, each printable and
// bounded.
func sayings(r program.Result) (out []string) {
	text := string(r.Out) + "\n" + r.Message
	for line := range strings.Lines(text) {
		line = strings.Join(strings.Fields(strings.ToValidUTF8(line, " ")), " ")
		if line == "" {
			continue
		}
		if len(out) == maxMessages {
			return append(out, "…")
		}
		out = append(out, line[:min(len(line), maxMessage)])
	}
	return out
}

// confirm looks whether a complete XFS beside an intent is a format of ours that
// had come to its end: then the checker, which changes nothing, finds no error.
func (h *Host) confirm(ctx context.Context, d Device, r *Request) error {
	if _, err := h.on(ctx, d, program.Call{Name: "xfs_repair", Args: []string{"-n", d.Path}}); err != nil {
		return fmt.Errorf("%w: an XFS beside the mark of an unfinished format, and it is not clean: %w; "+
			"if the volume has no data yet, wipe its first 2 MiB", ErrDamaged, err)
	}
	return h.finish(ctx, d, r)
}
