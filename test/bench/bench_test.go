package main

import (
	"bufio"
	"math"
	"os/exec"
	"testing"
	"time"
)

func samplesOf(iops ...float64) (s []sample) {
	for _, v := range iops {
		s = append(s, sample{iops: v, cpu: 1e6 / v, path: 2e6 / v})
	}
	return s
}

func TestRatiosArePairedByRound(t *testing.T) {
	// The second round was slow for both: the ratio does not see it.
	r := paired(samplesOf(200, 20, 300), samplesOf(100, 10, 100), iopsOf)
	if r.median != 2 || r.lo != 2 || r.hi != 3 {
		t.Fatalf("got %+v", r)
	}
}

func TestMedianOfAnEvenCountIsBetweenTheMiddle(t *testing.T) {
	if m := median([]float64{4, 1, 3, 2}); m != 2.5 {
		t.Fatalf("got %v", m)
	}
	if !math.IsNaN(median(nil)) {
		t.Fatal("the median of nothing is a number")
	}
}

func TestAClaimWhoseControlLeavesItsSpanIsVoidAndNotMet(t *testing.T) {
	peers := []peer{{name: "ours"}, {name: nbdkitMemory}}
	w := workload{name: "w", goals: map[string]float64{nbdkitMemory: 1.3}}
	for again, held := range map[float64]bool{100: true, 104: true, 106: false, 94: false} {
		s := [][]sample{samplesOf(100, 100, 100), samplesOf(50, 50, 50), samplesOf(again, again, again)}
		for _, c := range judge("nbd", peers, w, s) {
			if c.Void == held || c.Met != held || c.Ratio != 2 {
				t.Errorf("control %v: %+v", again, c)
			}
		}
	}
}

func TestAClaimIsMadeByClockAndByCPUForEachBaselineWithAGoal(t *testing.T) {
	peers := []peer{{name: "ours"}, {name: nbdkitMemory}, {name: "other"}}
	s := [][]sample{samplesOf(130, 140), samplesOf(100, 100), samplesOf(1, 1), samplesOf(130, 140)}
	c := judge("nbd", peers, workload{name: "w", goals: map[string]float64{nbdkitMemory: 1.3}}, s)
	if len(c) != 2 || !c[0].Met || c[0].Ratio != 1.35 || c[0].Rounds != 2 || c[0].Control != 1 || c[0].Metric == c[1].Metric {
		t.Fatalf("got %+v", c)
	}
}

func TestCPUTimeIsReadBehindAnyCommandName(t *testing.T) {
	d, err := parseStat("7 (a) b (c)) S 1 7 7 0 -1 4194304 100 0 0 0 150 50 0 0 20 0 5 0 1 1 1")
	if err != nil || d != 2*time.Second {
		t.Fatalf("%v, %v", d, err)
	}
	if _, err := parseStat("7 (a) S 1"); err == nil {
		t.Fatal("a short line was accepted")
	}
}

func TestFioResultsAreReadBehindText(t *testing.T) {
	r, err := parseFio(`fio: connected to NBD server
{"jobs":[{"error":0,"job_runtime":1000,"usr_cpu":30,"sys_cpu":10,"read":{"iops":100,"bw_bytes":409600,"total_ios":200},"write":{"total_ios":0}}]}`)
	if err != nil || r.iops != 100 || r.ios != 200 || r.path != 2000 || r.mbps != 0.4096 {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, bad := range []string{"", "{}", `{"jobs":[{"error":5}]}`, `{"jobs":[{"error":0}]}`} {
		if _, err := parseFio(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestTheCPUTimeOfAChildCounts(t *testing.T) {
	outer := exec.Command("sh", "-c", `sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo done; read x'; true`)
	in, err := outer.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := outer.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := outer.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = outer.Wait() }()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	p := &process{name: "sh", cmd: outer}
	if d, err := p.cpuTime(); err != nil || d < 50*time.Millisecond {
		t.Fatalf("%v, %v", d, err)
	}
}
