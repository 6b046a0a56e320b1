package main

import "testing"

func TestACeilingIsMetFromBelow(t *testing.T) {
	peers := []peer{{name: "ours"}, {name: qemuISCSI}}
	w := workload{name: "w", goals: against(3), cost: 0.25}
	for cpu, met := range map[float64]bool{5e6: true, 3e6: false} {
		// CPU per I/O is one over the rate here.
		s := [][]sample{samplesOf(cpu, cpu), samplesOf(1e6, 1e6), samplesOf(cpu, cpu)}
		c := judge("target", peers, w, s)
		if len(c) != 3 || !c[2].AtMost || c[2].Goal != 0.25 || c[2].Met != met || c[0].AtMost {
			t.Errorf("%v: %+v", cpu, c)
		}
	}
}

func TestTheLastAverageOfIscsiPerfCounts(t *testing.T) {
	v, err := parsePerf("\r00:00:01 - lba 8, iops current 7 (0 MB/s), iops average 7 (0 MB/s)\riops average 12345 (48 MB/s)   \n\nfinished.")
	if err != nil || v != 12345 {
		t.Fatalf("%v, %v", v, err)
	}
	for _, bad := range []string{"", "iops average 0 (0 MB/s)", "Login Failed."} {
		if _, err := parsePerf(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestALoadThatDidNothingIsAnError(t *testing.T) {
	iops, ios, err := parseLoad(`{"ios":300,"seconds":1.5,"recvs":0.1}`)
	if err != nil || iops != 200 || ios != 300 {
		t.Fatalf("%v, %v, %v", iops, ios, err)
	}
	for _, bad := range []string{"", "{}", `{"ios":0,"seconds":1}`} {
		if _, _, err := parseLoad(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestTheSizeOfAWorkloadIsInBytes(t *testing.T) {
	for bs, want := range map[string]int{"4k": 4096, "64k": 65536, "1M": 1 << 20} {
		if got := (workload{bs: bs}).size(); got != want {
			t.Errorf("%s: %d", bs, got)
		}
	}
}
