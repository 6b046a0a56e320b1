package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"regexp"
	"strconv"
	"syscall"
	"time"
)

const libiscsi = "libiscsi iscsi-perf"

// The whole path again, with the embedded target behind both: tgt costs far
// more per I/O than what is compared. One path, the ledger of I3 on.
var targetWorkloads = []workload{
	{name: "4k read QD1", rw: "randread", bs: "4k", depth: 1, goals: against(1.3)},
	{name: "4k read QD32", rw: "randread", bs: "4k", depth: 32, goals: against(3), cost: 0.25},
	{name: "4k write QD32", rw: "randwrite", bs: "4k", depth: 32, goals: against(3), cost: 0.25},
	{name: "64k read QD16", rw: "randread", bs: "64k", depth: 16, bandwidth: true, goals: against(1.7)},
	{name: "64k write QD16", rw: "randwrite", bs: "64k", depth: 16, bandwidth: true, goals: against(1.7)},
	{name: "1M read QD4", rw: "read", bs: "1M", depth: 4, bandwidth: true, goals: against(1.3)},
	{name: "1M write QD4", rw: "write", bs: "1M", depth: 4, bandwidth: true, goals: against(1)},
}

func overPerf(goal float64) map[string]float64 { return map[string]float64{libiscsi: goal} }

// The initiator alone. iscsi-perf only reads.
var initiatorWorkloads = []workload{
	{name: "4k read QD1", rw: "randread", bs: "4k", depth: 1, goals: overPerf(0.95)},
	{name: "4k read QD32", rw: "randread", bs: "4k", depth: 32, goals: overPerf(4)},
	{name: "1M read QD4", rw: "read", bs: "1M", depth: 4, bandwidth: true, goals: overPerf(0.9)},
}

// startRAM runs the embedded target, with more arguments, and returns its portal.
func (b *bench) startRAM(more ...string) (p *process, portal string, err error) {
	binary := b.path("ramtgt")
	if err := b.command(nil, "go", "build", "-o", binary, "./test/bench/ramtgt"); err != nil {
		return nil, "", err
	}
	if portal, err = freePort(); err != nil {
		return nil, "", err
	}
	p, err = b.start("ramtgt", nil, append([]string{binary, "-listen", portal, "-name", iqn, "-size", fmt.Sprint(deviceSize)}, more...)...)
	if err == nil {
		err = b.await(p, "answer of its portal", func() bool { return answers(portal) })
	}
	return p, portal, err
}

func startTarget(b *bench) ([]peer, error) {
	if err := b.needOurs("fio", "qemu-storage-daemon", "taskset"); err != nil {
		return nil, err
	}
	ram, portal, err := b.startRAM()
	if err != nil {
		return nil, err
	}
	return b.attached(ram, portal, "0")
}

func startInitiator(b *bench) ([]peer, error) {
	if err := need("iscsi-perf", "taskset"); err != nil {
		return nil, err
	}
	ram, portal, err := b.startRAM()
	if err != nil {
		return nil, err
	}
	binary := b.path("iscsiload")
	if err := b.command(nil, "go", "build", "-o", binary, "./test/bench/iscsiload"); err != nil {
		return nil, err
	}
	ours := func(b *bench, w workload, seconds float64) (result, error) {
		arg := []string{binary, "-portal", portal, "-target", iqn, "-size", fmt.Sprint(w.size()),
			"-depth", fmt.Sprint(w.depth), "-seconds", fmt.Sprint(seconds), fmt.Sprintf("-random=%t", w.random())}
		return b.driver(w, arg, seconds, parseLoad)
	}
	perf := func(b *bench, w workload, seconds float64) (result, error) {
		seconds = math.Ceil(seconds)
		arg := []string{"iscsi-perf", "-i", "iqn.2026-01.io.csi-mpath:iscsi-perf", "-m", fmt.Sprint(w.depth),
			"-b", fmt.Sprint(w.size() / 512), "-t", fmt.Sprint(seconds)}
		if w.random() {
			arg = append(arg, "-r")
		}
		return b.driver(w, append(arg, "iscsi://"+portal+"/"+iqn+"/0"), seconds, func(out string) (float64, float64, error) {
			iops, err := parsePerf(out)
			return iops, iops * seconds, err
		})
	}
	return []peer{{name: "pkg/iscsi", load: ours, behind: ram}, {name: libiscsi, load: perf, behind: ram}}, nil
}

func (w workload) random() bool { return w.rw == "randread" }

// size is the length of one I/O, bytes.
func (w workload) size() int {
	n, _ := strconv.Atoi(w.bs[:len(w.bs)-1])
	if w.bs[len(w.bs)-1] == 'M' {
		return n << 20
	}
	return n << 10
}

// driver runs a load that is itself what is compared.
func (b *bench) driver(w workload, arg []string, seconds float64, parse func(out string) (iops, ios float64, err error)) (result, error) {
	ctx, cancel := context.WithTimeout(b.ctx, time.Duration(seconds*float64(time.Second))+30*time.Second)
	defer cancel()
	arg = b.pin(arg)
	cmd := exec.CommandContext(ctx, arg[0], arg[1:]...)
	var errOut tail
	cmd.Stderr = &errOut
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.Output()
	if err != nil {
		return result{}, fmt.Errorf("%s: %w: %s", arg, errors.Join(err, ctx.Err()), errOut.String())
	}
	iops, ios, err := parse(string(out))
	if err != nil {
		return result{}, err
	}
	if b.verbose {
		b.progress("%s", out)
	}
	own := float64((cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Microseconds()) / ios
	return result{ios: ios, sample: sample{iops: iops, mbps: iops * float64(w.size()) / 1e6, cpu: own, path: own}}, nil
}

// parseLoad reads what iscsiload prints.
func parseLoad(out string) (iops, ios float64, err error) {
	var r struct{ IOs, Seconds float64 }
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		return 0, 0, fmt.Errorf("iscsiload's result: %w", err)
	}
	if r.IOs == 0 || r.Seconds == 0 {
		return 0, 0, errors.New("iscsiload did no I/O")
	}
	return r.IOs / r.Seconds, r.IOs, nil
}

var perfAverage = regexp.MustCompile(`iops average (\d+)`)

// parsePerf reads the last average that iscsi-perf prints.
func parsePerf(out string) (float64, error) {
	all := perfAverage.FindAllStringSubmatch(out, -1)
	if all == nil {
		return 0, fmt.Errorf("iscsi-perf printed no average: %.200s", out)
	}
	v, err := strconv.ParseFloat(all[len(all)-1][1], 64)
	if err == nil && v == 0 {
		err = errors.New("iscsi-perf did no I/O")
	}
	return v, err
}
