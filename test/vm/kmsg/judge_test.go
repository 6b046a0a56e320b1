package kmsg

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestARecordIsTakenApart(t *testing.T) {
	got, err := Parse("30,339,5140900,-,caller=T1;nbd0: size; changed\n SUBSYSTEM=block\n DEVICE=b43:0\n")
	want := Record{Level: 6, Seq: 339, Since: 5140900 * time.Microsecond, Text: "nbd0: size; changed"}
	if err != nil || got != want {
		t.Fatalf("got %+v, %v", got, err)
	}
}

func TestWhatIsNoRecordIsAnError(t *testing.T) {
	for _, s := range []string{"", ";", "6,1,2;x", "a,1,2,-;x", "6,-1,2,-;x", "6,1,,-;x", "6,1,2,-"} {
		if r, err := Parse(s); err == nil {
			t.Errorf("%q: got %+v", s, r)
		}
	}
}

func texts(level int, all ...string) []Record {
	var out []Record
	for _, s := range all {
		out = append(out, Record{Level: level, Text: s})
	}
	return out
}

func TestWhatNoHealthyKernelSaysIsFound(t *testing.T) {
	all := texts(6,
		"WARNING: CPU: 1 PID: 77 at fs/inode.c:332 drop_nlink+0x2c/0x40",
		"BUG: kernel NULL pointer dereference, address: 0000000000000008",
		"Oops: 0002 [#1] PREEMPT SMP",
		"INFO: task jbd2/nbd0-8:312 blocked for more than 120 seconds.",
		"I/O error, dev nbd0, sector 2048 op 0x1:(WRITE) flags 0x800 phys_seg 1 prio class 2",
		"Buffer I/O error on dev nbd0, logical block 0, lost async page write",
		"EXT4-fs (nbd0): warning: mounting fs with errors, running e2fsck is recommended",
		"EXT4-fs error (device nbd0): ext4_journal_check_start:83: Detected aborted journal",
		"XFS (nbd0): log I/O error -5",
		"XFS (nbd0): Metadata corruption detected at xfs_agf_read_verify",
		"watchdog: BUG: soft lockup - CPU#0 stuck for 26s!",
		"rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
		"refcount_t: underflow; use-after-free.",
		"tgtd invoked oom-killer: gfp_mask=0x140cca",
		"csi-mpath[5]: segfault at 0 ip 0 sp 0 error 4")
	if got := Findings(all); len(got) != len(all) {
		t.Fatalf("found %d of %d: %v", len(got), len(all), got)
	}
}

func TestOrdinaryMessagesAreFine(t *testing.T) {
	all := texts(6, "EXT4-fs (nbd0): mounted filesystem with ordered data mode. Quota mode: none.",
		"XFS (nbd0): Ending clean mount", "nbd0: detected capacity change from 0 to 524288", "debug: fast enough")
	if got := Findings(all); len(got) != 0 {
		t.Fatalf("found %v", got)
	}
}

func TestErrorsAreFoundByTheirLevel(t *testing.T) {
	all := append(texts(3, "block nbd0: Receive control failed (result -104)"), texts(4, "only a warning")...)
	if got := Findings(all); len(got) != 1 || got[0].Level != 3 {
		t.Fatalf("found %v", got)
	}
}

func TestWhatATestAllowsIsNoFinding(t *testing.T) {
	all := texts(3, "block nbd0: Receive control failed (result -32)", "block nbd1: Possible stuck request 00000000abc: control (write@0,4096B). Runtime 2 seconds",
		"something else")
	got := Findings(all, ServerLost, ServerSlow)
	if len(got) != 1 || got[0].Text != "something else" {
		t.Fatalf("found %v", got)
	}
	if got := Findings(all, regexp.MustCompile(`.`)); len(got) != 0 {
		t.Fatalf("found %v", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("6,1,2,-;x\n A=b\n")
	f.Fuzz(func(t *testing.T, s string) {
		r, err := Parse(s)
		if err == nil && (r.Level < 0 || r.Level > 7 || r.Since < 0 || strings.Contains(r.Text, "\n")) {
			t.Fatalf("%q: %+v", s, r)
		}
	})
}
