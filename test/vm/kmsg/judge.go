package kmsg

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Record is one message of the kernel.
type Record struct {
	Level int    // 0 emergency … 3 error, 4 warning … 7 debug
	Seq   uint64 // counts from boot
	Since time.Duration
	Text  string
}

func (r Record) String() string { return fmt.Sprintf("[%12.6f] %s", r.Since.Seconds(), r.Text) }

// Parse reads one record of /dev/kmsg: "priority,sequence,microseconds,flags;text",
// then lines of a dictionary (Documentation/ABI/testing/dev-kmsg in Linux).
func Parse(s string) (Record, error) {
	head, text, ok := strings.Cut(s, ";")
	f := strings.Split(head, ",")
	if !ok || len(f) < 4 {
		return Record{}, fmt.Errorf("kernel log: no record: %.80q", s)
	}
	prio, err1 := strconv.ParseUint(f[0], 10, 32)
	seq, err2 := strconv.ParseUint(f[1], 10, 64)
	usec, err3 := strconv.ParseUint(f[2], 10, 53)
	if err1 != nil || err2 != nil || err3 != nil {
		return Record{}, fmt.Errorf("kernel log: bad numbers in record %.80q", s)
	}
	text, _, _ = strings.Cut(text, "\n")
	return Record{Level: int(prio & 7), Seq: seq, Since: time.Duration(usec) * time.Microsecond, Text: text}, nil
}

// bad is what no healthy kernel says, at whatever level.
var bad = regexp.MustCompile(strings.Join([]string{
	`\bBUG\b`, `\bWARNING: `, `\bOops\b`, `Kernel panic`, `general protection fault`, `Call Trace:`,
	`blocked for more than \d+ seconds`, `soft lockup`, `hard LOCKUP`, `detected (expedited )?stalls?`, `self-detected stall`,
	`(?i)\bI/O error\b`, `lost (async|sync)? ?page write`, `critical (medium|space|target|nexus) error`,
	`EXT4-fs (error|warning)`, `EXT4-fs \(.*\): (error|warning)`, `Aborting journal`, `Remounting filesystem read-only`,
	`XFS.*(orruption|Internal error|Shutting down|log I/O)`,
	`refcount_t: `, `(list_add|list_del) corruption`, `\bUBSAN\b`, `\bKASAN\b`, `unregister_netdevice: waiting`,
	`invoked oom-killer`, `Out of memory`, `page allocation failure`, `possible circular locking`, `segfault at`, `traps: `,
}, "|"))

// levelError and all below it (critical, alert, emergency) are findings, too.
const levelError = 3

// Findings are the records that a test must not cause, less those it allows.
func Findings(all []Record, allow ...*regexp.Regexp) []Record {
	var out []Record
	for _, r := range all {
		if (r.Level <= levelError || bad.MatchString(r.Text)) && !allowed(r.Text, allow) {
			out = append(out, r)
		}
	}
	return out
}

func allowed(text string, allow []*regexp.Regexp) bool {
	for _, a := range allow {
		if a.MatchString(text) {
			return true
		}
	}
	return false
}

// Provoked allows the records that hold a text.
func Provoked(text string) *regexp.Regexp { return regexp.MustCompile(regexp.QuoteMeta(text)) }

// What tests commonly provoke.
var (
	// ServerLost: the process behind an nbd device went away.
	ServerLost = regexp.MustCompile(`nbd\d+: (Receive control failed|Send (control|data|disconnect) failed|Dead connection|shutting down sockets|` +
		`Failed to open device|Attempted send on invalid socket|Connection timed out|Unexpected reply|Disconnected)|` +
		`block nbd\d+: (Receive control failed|Send (control|data|disconnect) failed|Request send failed, requeueing|Dead connection|shutting down sockets|Disconnected|` +
		`Attempted send on invalid socket|Connection timed out|Request send failed)`)
	// ServerSlow: a request has had no answer for as long as queue/io_timeout.
	ServerSlow = regexp.MustCompile(`nbd\d+: Possible stuck request`)
	// KeptOut: the kernel's targets put a node out, or do not let one in.
	KeptOut = regexp.MustCompile(strings.Join([]string{
		`iSCSI Login negotiation failed`, `is not authorized`,
		`Unable to locate Target (IQN|Portal)`, `iSCSI Network Portal on .* currently not active`, `[rt]x_data returned`,
		`Security negotiation failed`, `Proposer's value list`, `Exiting Time2Retain handler`,
		`Detected (NON_EXISTENT_LUN|WRITE_PROTECTED LUN Access)`, `could not be granted`,
		`nvmet: connect by host .* not allowed`, `connect request for invalid subsystem`, `nvmet: ctrl \d+ `, `nvmet_tcp: (queue|failed)`,
	}, "|"))
	// HungTask: a process has waited for a device for two minutes.
	HungTask = regexp.MustCompile(`blocked for more than \d+ seconds|^ +(Not tainted|Tainted: )|Call Trace:|hung_task_timeout_secs`)
	// Boot is what this emulated machine says when it starts.
	Boot = regexp.MustCompile(`^$`)
)
