package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// deviceSize is what the peers serve, and what a job spreads over, bytes.
const deviceSize = 256 << 20

// Special lengths of a job, in place of seconds.
const (
	fill = -1  // the whole device once
	warm = 0.3 // seconds, not recorded
)

// fio runs one job on a peer for so many seconds.
func (b *bench) fio(p peer, w workload, seconds float64) (result, error) {
	arg := b.pin([]string{"fio", "--name=job", "--ioengine=nbd", "--uri=" + p.uri, "--output-format=json",
		"--rw=" + w.rw, "--bs=" + w.bs, fmt.Sprintf("--iodepth=%d", w.depth),
		fmt.Sprintf("--size=%d", deviceSize/max(w.streams, 1)), "--randrepeat=1", "--norandommap"})
	if w.streams > 1 {
		arg = append(arg, fmt.Sprintf("--numjobs=%d", w.streams), "--group_reporting", fmt.Sprintf("--offset_increment=%d", deviceSize/w.streams))
	}
	limit := 60 * time.Second
	if seconds != fill {
		arg = append(arg, "--time_based", fmt.Sprintf("--runtime=%dms", int(seconds*1000)))
		limit = time.Duration(seconds*float64(time.Second))*2 + 20*time.Second
	}
	ctx, cancel := context.WithTimeout(b.ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, arg[0], arg[1:]...)
	var errOut tail
	cmd.Stderr = &errOut
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.Output()
	if err != nil {
		return result{}, fmt.Errorf("fio --rw=%s --bs=%s: %w: %s", w.rw, w.bs, errors.Join(err, ctx.Err()), errOut.String())
	}
	return parseFio(string(out))
}

type fioSide struct {
	IOPS  float64 `json:"iops"`
	Bytes float64 `json:"bw_bytes"`
	Total float64 `json:"total_ios"`
}

// parseFio reads fio's JSON, which may follow lines of text.
func parseFio(out string) (result, error) {
	i := strings.Index(out, "{")
	if i < 0 {
		return result{}, fmt.Errorf("fio printed no result: %.200s", out)
	}
	var r struct {
		Jobs []struct {
			Error   int     `json:"error"`
			Runtime float64 `json:"job_runtime"` // milliseconds
			User    float64 `json:"usr_cpu"`     // percent of Runtime
			System  float64 `json:"sys_cpu"`
			Read    fioSide `json:"read"`
			Write   fioSide `json:"write"`
		} `json:"jobs"`
	}
	if err := json.Unmarshal([]byte(out[i:]), &r); err != nil {
		return result{}, fmt.Errorf("fio's result: %w", err)
	}
	if len(r.Jobs) != 1 || r.Jobs[0].Error != 0 {
		return result{}, fmt.Errorf("fio's job failed: %.300s", out[i:])
	}
	side := r.Jobs[0].Read
	if r.Jobs[0].Write.Total > side.Total {
		side = r.Jobs[0].Write
	}
	if side.Total == 0 {
		return result{}, errors.New("fio's job did no I/O")
	}
	client := (r.Jobs[0].User + r.Jobs[0].System) / 100 * r.Jobs[0].Runtime * 1e3
	return result{ios: side.Total, sample: sample{iops: side.IOPS, mbps: side.Bytes / 1e6, path: client / side.Total}}, nil
}
