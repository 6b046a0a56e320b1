package main

const (
	overISCSI = "iSCSI"
	nqn       = "nqn.2026-01.io.csi-mpath:bench"
)

// NBD over NVMe/TCP against NBD over iSCSI: the same memory behind one process of
// the embedded target, one path each. What the protocol costs, no more.
var protocolWorkloads = []workload{
	{name: "4k read QD1", rw: "randread", bs: "4k", depth: 1, goals: againstISCSI},
	{name: "4k write QD1", rw: "randwrite", bs: "4k", depth: 1, goals: againstISCSI},
	{name: "4k read QD32", rw: "randread", bs: "4k", depth: 32, goals: againstISCSI},
	{name: "4k write QD32", rw: "randwrite", bs: "4k", depth: 32, goals: againstISCSI},
	{name: "64k read QD16", rw: "randread", bs: "64k", depth: 16, bandwidth: true, goals: againstISCSI},
	{name: "64k write QD16", rw: "randwrite", bs: "64k", depth: 16, bandwidth: true, goals: againstISCSI},
	{name: "1M read QD4", rw: "read", bs: "1M", depth: 4, bandwidth: true, goals: againstISCSI},
	{name: "1M write QD4", rw: "write", bs: "1M", depth: 4, bandwidth: true, goals: againstISCSI},
}

var againstISCSI = map[string]float64{overISCSI: 0}

func startProtocols(b *bench) ([]peer, error) {
	if err := b.needOurs("fio", "taskset"); err != nil {
		return nil, err
	}
	portal, err := freePort()
	if err != nil {
		return nil, err
	}
	ram, iscsi, err := b.startRAM("-nvme-tcp", portal, "-nqn", nqn)
	if err != nil {
		return nil, err
	}
	nvme, scsi := b.path("nvme"), b.path("scsi")
	return b.servers([]peer{{name: "NVMe/TCP", uri: uri(nvme, ""), behind: ram}, {name: overISCSI, uri: uri(scsi, ""), behind: ram}},
		[]string{nvme, scsi}, [][]string{
			{b.bin, "attach", "--nvme-tcp", portal, "--subsystem", nqn, "--socket", nvme, "--state-dir", b.path("state1")},
			{b.bin, "attach", "--iscsi", iscsi, "--target", iqn, "--socket", scsi, "--state-dir", b.path("state2")},
		})
}
