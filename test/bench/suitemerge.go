package main

import "fmt"

// Names of the merge deadlines as peers.
const (
	mergeOff  = "merge off"
	mergeAuto = "merge auto"
)

// Sequential 4k streams through tgt, which costs far more per command than per
// byte: one attach per merge deadline, over the same target. Four streams are
// four connections; on one connection there is one.
func mergeWorkloads(goal float64) []workload {
	against := func(goal float64) map[string]float64 { return map[string]float64{mergeOff: goal, mergeAuto: 0} }
	return []workload{
		{name: "4 x 4k sequential write QD8", rw: "write", bs: "4k", depth: 8, streams: 4, bandwidth: true, goals: against(goal)},
		{name: "4 x 4k sequential read QD8", rw: "read", bs: "4k", depth: 8, streams: 4, bandwidth: true, goals: against(goal)},
		{name: "4k sequential write QD32, one connection", rw: "write", bs: "4k", depth: 32, bandwidth: true, goals: against(0)},
		{name: "4k random write QD32", rw: "randwrite", bs: "4k", depth: 32, goals: against(0.95)},
	}
}

// startMerge serves one volume of tgt with a merge deadline, and for comparison
// with others.
func startMerge(deadline string) func(b *bench) ([]peer, error) {
	return func(b *bench) ([]peer, error) {
		if err := b.needOurs("fio", "tgtd", "tgtadm", "taskset"); err != nil {
			return nil, err
		}
		tgt, portal, err := b.startTgt()
		if err != nil {
			return nil, err
		}
		var peers []peer
		var sockets []string
		var args [][]string
		for i, p := range []struct{ name, deadline string }{{"deadline " + deadline, deadline}, {mergeOff, "off"}, {mergeAuto, "auto"}} {
			socket := b.path(fmt.Sprint("merge", i))
			peers = append(peers, peer{name: p.name, uri: uri(socket, ""), behind: tgt})
			sockets = append(sockets, socket)
			args = append(args, []string{b.bin, "attach", "--iscsi", portal, "--target", iqn, "--lun", "1", "--socket", socket,
				"--state-dir", b.path(fmt.Sprint("state", i)), "--merge-deadline", p.deadline})
		}
		return b.servers(peers, sockets, args)
	}
}
