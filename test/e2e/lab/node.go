package lab

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-mpath/csi-mpath/test/child"
)

// Node is one of the cluster: a containerd and a kubelet with mounts, processes and a
// network of their own. The kernel, /dev among it, is everybody's.
type Node struct {
	Name   string
	l      *Lab
	number int
	main   *child.Child
}

func (l *Lab) newNode(name string, number int) *Node {
	l.t.Helper()
	n := &Node{Name: name, l: l, number: number}
	n.plug()
	return n
}

func (n *Node) path(elem ...string) string { return n.l.path(append([]string{n.Name}, elem...)...) }

func (n *Node) socket() string { return n.path("containerd.sock") }

// sysctls are what a kubelet sets for the whole kernel; it is given files instead.
var sysctls = []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"}

// start starts both programs, in a sandbox in the node's network.
func (n *Node) start() {
	l := n.l
	l.t.Helper()
	args := []string{"--net=/run/netns/" + n.Name, l.bin("sandbox"), "-tmpfs", "/run", "-tmpfs", "/var/log"}
	for _, b := range [][2]string{{"kubelet", "/var/lib/kubelet"}, {"log", "/var/log/pods"}, {"containers", "/var/log/containers"}, {"cni", "/var/lib/cni"}, {"csi-mpath", "/run/csi-mpath"}} {
		l.must(os.MkdirAll(n.path(b[0]), 0o755))
		args = append(args, "-bind", n.path(b[0])+":"+b[1])
	}
	for _, s := range sysctls {
		at := n.path(filepath.Base(s))
		old, err := os.ReadFile("/proc/sys/" + s)
		l.must(err)
		l.must(os.WriteFile(at, old, 0o644))
		args = append(args, "-bind", at+":/proc/sys/"+s)
	}
	n.configure()
	n.groups()
	kubelet := fmt.Sprintf("exec %s --config=%s --kubeconfig=%s --hostname-override=%s --node-ip=%s --cert-dir=%s --v=2",
		l.bin("kubelet"), n.path("kubelet.yaml"), l.Kubeconfig("system:node:"+n.Name), n.Name, n.Address(), n.path("pki"))
	script := fmt.Sprintf("containerd -c %s >%s 2>&1 &\n%s", n.path("containerd.toml"), n.path("containerd.log"), kubelet)
	n.main = l.daemon(n.Name, "nsenter", append(args, "--", "sh", "-c", script)...)
	l.Until("containerd of "+n.Name, ready, func() error {
		c, err := net.Dial("unix", n.socket())
		if err == nil {
			err = c.Close()
		}
		return err
	})
}

// Kill ends everything on the node, as the loss of its power does.
func (n *Node) Kill() {
	delete(n.l.daemons, n.Name)
	if n.main != nil {
		n.main.Kill()
	}
}

// groups are the node's control groups: two kubelets on one kernel.
func (n *Node) groups() {
	n.l.t.Helper()
	roots, err := filepath.Glob("/sys/fs/cgroup/*")
	n.l.must(err)
	for _, root := range roots {
		at := root
		for _, name := range []string{filepath.Base(n.l.Dir), n.Name} {
			at = filepath.Join(at, name)
			if err := os.Mkdir(at, 0o755); err != nil && !os.IsExist(err) {
				n.l.t.Fatal(err)
			}
			for _, f := range []string{"cpuset.cpus", "cpuset.mems"} { // an empty set holds nobody
				if b, err := os.ReadFile(filepath.Join(filepath.Dir(at), f)); err == nil && filepath.Base(root) == "cpuset" {
					n.l.must(os.WriteFile(filepath.Join(at, f), b, 0o644))
				}
			}
		}
	}
}

// configure writes what kubelet, containerd and its network plugin read.
func (n *Node) configure() {
	for name, text := range map[string]string{
		"kubelet.yaml":           fmt.Sprintf(kubeletConfig, n.socket(), filepath.Base(n.l.Dir), n.Name),
		"containerd.toml":        fmt.Sprintf(containerdConfig, n.path("containerd"), n.socket(), Images["pause"], n.path("cni.d")),
		"cni.d/10-pods.conflist": fmt.Sprintf(networkConfig, n.pods()),
	} {
		n.l.must(os.MkdirAll(filepath.Dir(n.path(name)), 0o755))
		n.l.must(os.WriteFile(n.path(name), []byte(strings.TrimSpace(text)+"\n"), 0o644))
	}
}

const kubeletConfig = `
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
containerRuntimeEndpoint: unix://%s
cgroupRoot: /%s/%s
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
resolvConf: ""
makeIPTablesUtilChains: false
syncFrequency: 5s
nodeStatusUpdateFrequency: 4s
volumeStatsAggPeriod: 10s
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 50Mi, nodefs.available: "1%%", imagefs.available: "1%%"}
serializeImagePulls: false
`

// The kernel lets nobody here lower a process's oom_score_adj (restrict_oom_score_adj).
const containerdConfig = `
version = 2
root = "%[1]s/root"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]
[grpc]
  address = "%[2]s"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "%[3]s"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "%[4]s"
`

const networkConfig = `
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "%s"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
`

// Ready waits until the node says that it is ready, or, for false, until the cluster
// says that it is not.
func (n *Node) Ready(want bool) {
	n.l.t.Helper()
	n.l.Until(fmt.Sprintf("node %s to have Ready=%v", n.Name, want), ready, func() error {
		got, err := n.l.Kube.CoreV1().Nodes().Get(context.WithoutCancel(n.l.t.Context()), n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range got.Status.Conditions {
			if c.Type == corev1.NodeReady && (c.Status == corev1.ConditionTrue) == want {
				return nil
			}
		}
		return fmt.Errorf("its conditions: %v", got.Status.Conditions)
	})
}

// Log is what the container of a pod in namespace default printed, from the node's
// disk: nobody else has to be asked.
func (n *Node) Log(pod string) string {
	n.l.t.Helper()
	files, err := filepath.Glob(n.path("log", "default_"+pod+"_*", "app", "*.log"))
	n.l.must(err)
	var all strings.Builder
	for _, f := range files {
		b, err := os.ReadFile(f)
		n.l.must(err)
		all.Write(b)
	}
	return all.String()
}

// StateDir is what the node plugin of a node is told to keep its state in. Its devices
// carry the path, and the sandbox finds by it which are ours.
func (l *Lab) StateDir(node string) string {
	return filepath.Join("/run/csi-mpath", filepath.Base(l.Dir), node)
}

// Records are what the node's plugin remembers of volumes.
func (n *Node) Records() []string {
	n.l.t.Helper()
	out, err := filepath.Glob(n.path("csi-mpath", filepath.Base(n.l.Dir), n.Name, "volumes", "*.staged"))
	n.l.must(err)
	return out
}
