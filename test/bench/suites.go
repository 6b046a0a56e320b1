package main

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
)

// suites by name. One more is a function that starts its peers, ours first.
var suites = map[string]suite{
	"nbd":       {start: startNBD, workloads: nbdWorkloads},
	"iscsi":     {start: startISCSI, workloads: iscsiWorkloads},
	"target":    {start: startTarget, workloads: targetWorkloads},
	"initiator": {start: startInitiator, workloads: initiatorWorkloads},
	"merge0":    {start: startMerge("0"), workloads: mergeWorkloads(2)},
	"protocols": {start: startProtocols, workloads: protocolWorkloads},
	"paths":     {start: startPaths, workloads: pathsWorkloads},
	"merge10us": {start: startMerge("10us"), workloads: mergeWorkloads(2)},
}

func suiteNames() []string {
	var names []string
	for n := range suites {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Names of the baselines.
const (
	nbdkitMemory = "nbdkit memory"
	qemuFile     = "qemu raw file"
	qemuISCSI    = "qemu + libiscsi"
)

func goals(nbdkit, qemu float64) map[string]float64 {
	return map[string]float64{nbdkitMemory: nbdkit, qemuFile: qemu}
}

// The NBD front end alone: nothing but memory behind it.
var nbdWorkloads = []workload{
	{name: "4k read QD32", rw: "randread", bs: "4k", depth: 32, goals: goals(1.3, 2)},
	{name: "4k write QD32", rw: "randwrite", bs: "4k", depth: 32, goals: goals(0.95, 2)},
	{name: "64k read QD16", rw: "randread", bs: "64k", depth: 16, bandwidth: true, goals: goals(1.7, 2)},
}

func against(goal float64) map[string]float64 { return map[string]float64{qemuISCSI: goal} }

// The whole path: NBD in, iSCSI out, one tgt daemon for both.
var iscsiWorkloads = []workload{
	{name: "4k read QD1", rw: "randread", bs: "4k", depth: 1, goals: against(1)},
	{name: "4k read QD32", rw: "randread", bs: "4k", depth: 32, goals: against(1.2)},
	{name: "4k write QD32", rw: "randwrite", bs: "4k", depth: 32, goals: against(1.2)},
	{name: "64k read QD16", rw: "randread", bs: "64k", depth: 16, bandwidth: true, goals: against(1)},
	{name: "64k write QD16", rw: "randwrite", bs: "64k", depth: 16, bandwidth: true, goals: against(1)},
	{name: "1M read QD4", rw: "read", bs: "1M", depth: 4, bandwidth: true, goals: against(1)},
	{name: "1M write QD4", rw: "write", bs: "1M", depth: 4, bandwidth: true, goals: against(1)},
}

func uri(socket, export string) string { return "nbd+unix:///" + export + "?socket=" + socket }

func startNBD(b *bench) ([]peer, error) {
	if err := need("fio", "nbdkit", "qemu-storage-daemon", "taskset"); err != nil {
		return nil, err
	}
	binary := b.path("nbdram")
	if err := b.command(nil, "go", "build", "-o", binary, "./test/bench/nbdram"); err != nil {
		return nil, err
	}
	size := fmt.Sprint(deviceSize)
	file := b.path("file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return nil, err
	}
	if err := os.Truncate(file, deviceSize); err != nil {
		return nil, err
	}
	ours, kit, qemu := b.path("ours"), b.path("nbdkit"), b.path("qemu")
	return b.servers([]peer{{name: "csi-mpath", uri: uri(ours, "")}, {name: nbdkitMemory, uri: uri(kit, "")},
		{name: qemuFile, uri: uri(qemu, "d")}}, []string{ours, kit, qemu}, [][]string{
		{binary, "-socket", ours, "-size", size},
		{"nbdkit", "-f", "-U", kit, "memory", size},
		qemuDaemon(qemu, "driver=raw,node-name=d,file.driver=file,file.filename="+file),
	})
}

// servers starts one server per peer and waits for its socket.
func (b *bench) servers(peers []peer, sockets []string, arg [][]string) ([]peer, error) {
	for i := range peers {
		p, err := b.start(peers[i].name, nil, arg[i]...)
		if err == nil {
			err = b.awaitSocket(p, sockets[i])
		}
		if err != nil {
			return nil, err
		}
		peers[i].server = p
	}
	return peers, nil
}

// qemuDaemon serves the block device with node name d under the export name d.
func qemuDaemon(socket, blockdev string) []string {
	return []string{"qemu-storage-daemon", "--blockdev", blockdev,
		"--nbd-server", "addr.type=unix,addr.path=" + socket,
		"--export", "type=nbd,id=e,node-name=d,name=d,writable=on"}
}

const iqn = "iqn.2026-01.io.csi-mpath:bench"

func startISCSI(b *bench) ([]peer, error) {
	if err := b.needOurs("fio", "tgtd", "tgtadm", "qemu-storage-daemon", "taskset"); err != nil {
		return nil, err
	}
	tgt, portal, err := b.startTgt()
	if err != nil {
		return nil, err
	}
	return b.attached(tgt, portal, "1")
}

// needOurs is need, and csi-mpath itself.
func (b *bench) needOurs(programs ...string) error {
	if _, err := os.Stat(b.bin); err != nil {
		return fmt.Errorf("%w: run make build, or say where it is with --bin", err)
	}
	return need(programs...)
}

// attached serves one LUN of a target by NBD, with each of the peers.
func (b *bench) attached(behind *process, portal, lun string) ([]peer, error) {
	ours, qemu := b.path("ours"), b.path("qemu")
	return b.servers([]peer{{name: "csi-mpath", uri: uri(ours, ""), behind: behind}, {name: qemuISCSI, uri: uri(qemu, "d"), behind: behind}},
		[]string{ours, qemu}, [][]string{
			{b.bin, "attach", "--iscsi", portal, "--target", iqn, "--lun", lun, "--socket", ours, "--state-dir", b.path("state")},
			qemuDaemon(qemu, "driver=iscsi,node-name=d,transport=tcp,portal="+portal+",target="+iqn+
				",lun="+lun+",initiator-name=iqn.2026-01.io.csi-mpath:qemu,cache.direct=on"),
		})
}

// startTgt runs a tgt daemon with one LUN on a file in memory and returns its
// portal.
func (b *bench) startTgt() (p *process, portal string, err error) {
	file := b.path("lun")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return nil, "", err
	}
	if err := os.Truncate(file, deviceSize); err != nil {
		return nil, "", err
	}
	if portal, err = freePort(); err != nil {
		return nil, "", err
	}
	env := []string{"TGT_IPC_SOCKET=" + b.path("tgt")} // a control port of our own
	p, err = b.start("tgtd", env, "tgtd", "-f", "--iscsi", "portal="+portal)
	if err != nil {
		return nil, "", err
	}
	admin := func(arg string) error {
		return b.command(env, append([]string{"tgtadm", "--lld", "iscsi"}, strings.Fields(arg)...)...)
	}
	if err := b.await(p, "answer of its control port", func() bool { return admin("--op show --mode sys") == nil }); err != nil {
		return nil, "", err
	}
	for _, arg := range []string{
		"--op new --mode target --tid 1 -T " + iqn,
		"--op new --mode logicalunit --tid 1 --lun 1 --bstype rdwr -b " + file,
		"--op update --mode logicalunit --tid 1 --lun 1 --params vendor_id=MPATH,product_id=DISK,scsi_sn=BENCH1,thin_provisioning=1",
		"--op bind --mode target --tid 1 -I ALL",
	} {
		if err := admin(arg); err != nil {
			return nil, "", err
		}
	}
	return p, portal, nil
}

// answers reports whether somebody listens at address.
func answers(address string) bool {
	c, err := net.Dial("tcp", address)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

// freePort finds a loopback port that was free a moment ago.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}
