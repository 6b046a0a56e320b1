package main

const onePath = "one path"

// The same target daemon by two portals and by one: on one CPU a second path can
// give nothing, and must cost little (S3).
var pathsWorkloads = []workload{
	{name: "4k read QD32", rw: "randread", bs: "4k", depth: 32, goals: map[string]float64{onePath: 0.9}},
	{name: "4k write QD32", rw: "randwrite", bs: "4k", depth: 32, goals: map[string]float64{onePath: 0.9}},
	{name: "64k read QD16", rw: "randread", bs: "64k", depth: 16, bandwidth: true, goals: map[string]float64{onePath: 0.9}},
}

// startPaths serves one volume of tgt over two paths, and over one.
func startPaths(b *bench) ([]peer, error) {
	if err := b.needOurs("fio", "tgtd", "tgtadm", "taskset"); err != nil {
		return nil, err
	}
	tgt, portal, err := b.startTgt()
	if err != nil {
		return nil, err
	}
	second, err := freePort()
	if err != nil {
		return nil, err
	}
	if err := b.command([]string{"TGT_IPC_SOCKET=" + b.path("tgt")}, "tgtadm", "--lld", "iscsi", "--op", "new", "--mode", "portal",
		"--param", "portal="+second); err != nil {
		return nil, err
	}
	attach := func(portals, socket, state string) []string {
		return []string{b.bin, "attach", "--iscsi", portals, "--target", iqn, "--lun", "1", "--socket", socket, "--state-dir", state}
	}
	two, one := b.path("two"), b.path("one")
	return b.servers([]peer{{name: "two paths", uri: uri(two, ""), behind: tgt}, {name: onePath, uri: uri(one, ""), behind: tgt}},
		[]string{two, one}, [][]string{attach(portal+","+second, two, b.path("state2")), attach(portal, one, b.path("state1"))})
}
