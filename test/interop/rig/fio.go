package rig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/csi-mpath/csi-mpath/test/child"
)

// Load describes a verifying fio run: random reads and writes, every block
// with its crc32c, read back and compared shortly after it was written.
type Load struct {
	Socket  string
	Dir     string // for fio's files
	Size    int64  // bytes of each job; job i works at i*Size
	Jobs    int
	Depth   int
	Block   string // as fio knows it: "4k"
	Runtime time.Duration
}

// Fio is a running load.
type Fio struct {
	c   *child.Child
	out string
	end time.Duration
}

// FioResult is what a load did.
type FioResult struct {
	Reads, Writes         int64
	ReadIOPS, WriteIOPS   float64
	LongestRead, LongestW time.Duration
}

// StartFio starts the load.
func StartFio(l Load) (*Fio, error) {
	if _, err := exec.LookPath("fio"); err != nil {
		return nil, errors.New("fio is missing: run make setup as root")
	}
	out := filepath.Join(l.Dir, "fio.json")
	c, err := child.Start(child.Options{}, "fio", "--name=load", "--thread=1", "--ioengine=nbd",
		"--uri=nbd+unix:///?socket="+l.Socket, "--rw=randrw", "--bs="+l.Block,
		fmt.Sprint("--iodepth=", l.Depth), fmt.Sprint("--numjobs=", l.Jobs),
		fmt.Sprint("--size=", l.Size), fmt.Sprint("--offset_increment=", l.Size),
		"--verify=crc32c", "--verify_backlog=256", "--verify_fatal=1", "--serialize_overlap=1",
		"--time_based", fmt.Sprintf("--runtime=%dms", l.Runtime.Milliseconds()),
		"--randrepeat=1", "--verify_state_save=0", "--group_reporting", "--output-format=json", "--output="+out)
	if err != nil {
		return nil, err
	}
	return &Fio{c: c, out: out, end: l.Runtime}, nil
}

// Err is the failure of a load that ended before its time, nil while it runs.
func (f *Fio) Err() error {
	if f.c.Alive() {
		return nil
	}
	return f.c.Wait()
}

// Running reports whether the load goes on.
func (f *Fio) Running() bool { return f.c.Alive() }

// Wait waits for the end of the load, and longer by grace at most. Any I/O
// error or mismatch is an error.
func (f *Fio) Wait(grace time.Duration) (*FioResult, error) {
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-f.c.Done():
	case <-t.C:
		f.c.Kill()
		return nil, fmt.Errorf("fio hangs: it did not end within %v", grace)
	}
	if err := f.c.Wait(); err != nil {
		return nil, err
	}
	return readFio(f.out)
}

// Kill ends the load at once.
func (f *Fio) Kill() { f.c.Kill() }

type fioSide struct {
	IOPS  float64 `json:"iops"`
	Total int64   `json:"total_ios"`
	Clat  struct {
		Max float64 `json:"max"` // nanoseconds
	} `json:"clat_ns"`
}

func readFio(path string) (*FioResult, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	// fio prints lines of its engine before the document.
	if i := bytes.IndexByte(b, '{'); i > 0 {
		b = b[i:]
	}
	var doc struct {
		Jobs []struct {
			Error int     `json:"error"`
			Read  fioSide `json:"read"`
			Write fioSide `json:"write"`
		} `json:"jobs"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("fio's report %s: %w", path, err)
	}
	if len(doc.Jobs) != 1 {
		return nil, fmt.Errorf("fio's report has %d groups, want 1", len(doc.Jobs))
	}
	j := doc.Jobs[0]
	if j.Error != 0 {
		return nil, fmt.Errorf("fio ended with error %d", j.Error)
	}
	return &FioResult{
		Reads: j.Read.Total, Writes: j.Write.Total, ReadIOPS: j.Read.IOPS, WriteIOPS: j.Write.IOPS,
		LongestRead: time.Duration(j.Read.Clat.Max), LongestW: time.Duration(j.Write.Clat.Max),
	}, nil
}
