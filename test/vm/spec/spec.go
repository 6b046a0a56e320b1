// Package spec is what vmrun tells vminit: a JSON file in the initrd, and the
// words that come back over a serial port.
package spec

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The places both sides know.
const (
	File     = "spec.json" // in the initrd
	Modules  = "m"         // folder of the initrd
	RootTag  = "root"      // of the 9p share of the host's files
	OutTTY   = "ttyS1"     // the program's output
	ExitTTY  = "ttyS2"     // one word line, see Outcome
	ShareTag = "rw"        // followed by the index in Shares
)

// Module is a kernel module in the initrd.
type Module struct {
	File     string // in Modules
	Params   string // "nbds_max=4 max_part=0"
	Optional bool   // may fail to load: a faster twin for another CPU, say
}

// Spec is one run.
type Spec struct {
	Args    []string // program and arguments, a path of the host
	Env     []string
	Dir     string   // working directory
	Modules []Module // in the order of loading
	Early   int      // so many of them before the root is mounted
	Shares  []string // folders of the host that are writable
	Tree    string   // folder of the host with the kernel's modules
	Release string   // as uname -r prints it
	// Limit is how long after boot vminit gives up, with the blocked tasks in
	// the kernel's log. vmrun's own limit is a little longer.
	Limit time.Duration
}

// Outcome is how a run ended.
type Outcome struct {
	Code int    // exit code of the program; 128 + signal when one ended it
	Why  string // when vminit failed: the reason; Code means nothing then
}

// String is the line vminit writes to ExitTTY.
func (o Outcome) String() string {
	if o.Why != "" {
		return "failed " + strings.ReplaceAll(o.Why, "\n", " ") + "\n"
	}
	return fmt.Sprintf("exit %d\n", o.Code)
}

// ParseOutcome reads that line. It is false for anything that is not one whole
// line: the machine may have died in the middle of it.
func ParseOutcome(s string) (Outcome, bool) {
	line, whole := strings.CutSuffix(s, "\n")
	word, rest, ok := strings.Cut(line, " ")
	if !whole || !ok || rest == "" {
		return Outcome{}, false
	}
	if word == "failed" {
		return Outcome{Why: rest}, true
	}
	code, err := strconv.ParseUint(rest, 10, 8)
	return Outcome{Code: int(code)}, word == "exit" && err == nil
}
