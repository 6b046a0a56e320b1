//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/csi-mpath/csi-mpath/test/e2e/lab"
)

const (
	release = "csi-mpath"
	file    = "/data/records"
	device  = "/dev/data"
	first   = "node-1"
	second  = "node-2"
)

// claims of the story, and their pods, have the same names.
var claims = map[string]string{"a-iscsi": "iscsi", "a-nvme": "nvme-tcp"}

func (s *story) install() {
	for _, n := range s.Nodes {
		n.Ready(true)
	}
	s.Snapshotter()
	begun, err := s.Helm("install", release, os.Getenv("E2E_CHART"), "--namespace", release, "--create-namespace", "--values", s.values(), "--wait", "--timeout", "4m")
	s.must(err)
	s.must(os.WriteFile(s.Out+"/helm-install.txt", []byte(begun), 0o644))
	for _, n := range s.Nodes {
		s.Until("the driver to be registered on "+n.Name, soon, func() error {
			out, err := s.Try("get", "csinode", n.Name, "-o", "jsonpath={.spec.drivers[*].name}")
			if err == nil && !strings.Contains(out, "csi-mpath.io") {
				err = fmt.Errorf("its drivers: %q", out)
			}
			return err
		})
	}
	s.Show("install.txt", "get", "pods", "-A", "-o", "wide")
}

func (s *story) provision() {
	text := ""
	for name, class := range claims {
		text += claim(name, class, "512Mi", "Filesystem", "") + pod(name, name, first, false, "write", file)
	}
	s.Apply(text)
	for name := range claims {
		s.runs(name)
		s.writesOn(name, 20)
		s.is(s.handle(name), first, "Healthy")
	}
	s.Show("volumes.txt", "get", "pvc,pv,mpv")
}

func (s *story) keep() {
	out, err := s.Helm("uninstall", release, "--namespace", release, "--timeout", "2m")
	if err == nil {
		s.t.Fatalf("helm uninstall went through although volumes are attached: %s", out)
	}
	s.must(os.WriteFile(s.Out+"/helm-uninstall-refused.txt", []byte(out), 0o644))
	for name := range claims {
		s.writesOn(name, 20)
	}
}

func (s *story) cut() {
	dead := lab.Storage[1].Name
	s.SwitchOff(dead)
	for name := range claims {
		s.is(s.handle(name), first, "Degraded")
		s.writesOn(name, 50)
	}
	s.event("PersistentVolumeClaim", "a-iscsi", "MultipathDegraded", "1")
	s.Show("cut.txt", "get", "mpv", "-o", "wide")
	s.Show("cut.txt", "get", "events", "--sort-by=.lastTimestamp")
	s.Show("cut.txt", "describe", "pvc", "a-iscsi")
	s.SwitchOn(dead)
	for name := range claims {
		s.is(s.handle(name), first, "Healthy")
		s.writesOn(name, 50)
	}
	s.event("PersistentVolumeClaim", "a-iscsi", "PathUp", "")
	s.Show("returned.txt", "get", "mpv", "-o", "wide")
	s.Show("returned.txt", "get", "events", "--sort-by=.lastTimestamp")
}

func (s *story) expand() {
	for name := range claims {
		s.Kubectl("patch", "pvc", name, "-p", `{"spec":{"resources":{"requests":{"storage":"1Gi"}}}}`)
	}
	for name := range claims {
		s.Has(lab.Claims, name, longer, "1Gi", "status", "capacity", "storage")
		s.Until("the file system in pod "+name+" to be larger", soon, func() error {
			out, err := s.Try("exec", name, "--", "df", "-m", "/data")
			if err != nil {
				return err
			}
			fields := strings.Fields(out)
			if size, err := strconv.Atoi(fields[len(fields)-5]); err != nil || size < 900 {
				return fmt.Errorf("it has %s, %w", out, err)
			}
			return nil
		})
		s.writesOn(name, 20)
	}
}

func (s *story) clone() {
	written := map[string]uint64{}
	text := ""
	for name := range claims {
		written[name] = s.Acked(name)
		text += "apiVersion: snapshot.storage.k8s.io/v1\nkind: VolumeSnapshot\nmetadata: {name: " + name + "}\nspec: {volumeSnapshotClassName: csi-mpath, source: {persistentVolumeClaimName: " + name + "}}\n---\n"
	}
	s.Apply(text)
	text = ""
	for name, class := range claims {
		s.Has(lab.Snapshots, name, longer, "true", "status", "readyToUse")
		for of, source := range map[string]string{
			"snap-" + name:  "{apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: " + name + "}",
			"clone-" + name: "{kind: PersistentVolumeClaim, name: " + name + "}",
		} {
			text += claim(of, class, "1Gi", "Filesystem", source) + pod(of, of, second, false, "check", file, fmt.Sprint(written[name]))
		}
	}
	s.Apply(text)
	for name := range claims {
		s.succeeds("snap-"+name, "clone-"+name)
		s.writesOn(name, 20)
	}
	for name := range claims {
		s.Kubectl("delete", "pod,pvc", "snap-"+name, "clone-"+name)
		s.Kubectl("delete", "volumesnapshot", name)
	}
}

func (s *story) tune() {
	s.Kubectl("patch", "pvc", "a-iscsi", "-p", `{"spec":{"volumeAttributesClassName":"streaming"}}`)
	s.Has(lab.Claims, "a-iscsi", longer, "streaming", "status", "currentVolumeAttributesClassName")
	volume := s.handle("a-iscsi")
	s.Until("the node to have the new tunables", soon, func() error {
		o, err := s.multipath(volume, first)
		if err != nil || o == nil {
			return fmt.Errorf("no object: %w", err)
		}
		want, _, _ := unstructured.NestedInt64(o.Object, "spec", "generation")
		got, _, _ := unstructured.NestedInt64(o.Object, "status", "generation")
		if value, _, _ := unstructured.NestedString(o.Object, "spec", "tunables", "mergeDeadline"); value != "2ms" || want == 0 || got != want {
			return fmt.Errorf("mergeDeadline is %q; of generation %d it has %d", value, want, got)
		}
		return nil
	})
	s.Show("tuned.txt", "get", "mpv", "-o", "yaml")
	s.writesOn("a-iscsi", 20)
	s.Kubectl("patch", "pvc", "a-nvme", "-p", `{"spec":{"volumeAttributesClassName":"wrong"}}`)
	s.event("PersistentVolumeClaim", "a-nvme", "VolumeModifyFailed", "mergeDeadline")
	s.Show("tuned.txt", "describe", "pvc", "a-nvme")
	s.writesOn("a-nvme", 20)
}

func (s *story) raw() {
	s.Apply(claim("raw", "nvme-tcp", "64Mi", "Block", "") + pod("raw", "raw", first, true, "write", device))
	s.runs("raw")
	s.writesOn("raw", 100)
	n := s.Acked("raw")
	s.Kubectl("delete", "pod", "raw")
	s.Apply(pod("raw-check", "raw", second, true, "check", device, fmt.Sprint(n)))
	s.succeeds("raw-check")
	s.Kubectl("delete", "pod,pvc", "raw-check", "raw", "--ignore-not-found")
}

func (s *story) lose() {
	s.Nodes[0].Isolate()
	s.Nodes[0].Ready(false)
	s.Kubectl("taint", "node", first, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")
	for name := range claims {
		s.gone(lab.Pods, name)
	}
	written := map[string]uint64{}
	text := ""
	for name := range claims {
		n, err := acked(s.Nodes[0].Log(name))
		s.must(err)
		written[name] = n
		text += pod("b-"+name, name, second, false, "write", file)
	}
	s.Apply(text)
	for name := range claims {
		s.runs("b-" + name)
		s.writesOn("b-"+name, 50)
		if n := s.Acked("b-" + name); n < written[name] {
			s.t.Fatalf("pod b-%s is at record %d, and %d was acknowledged on %s", name, n, written[name], first)
		}
	}
	s.Show("lost.txt", "get", "nodes,pods,mpv,volumeattachments", "-o", "wide")
	s.Show("lost.txt", "get", "events", "-A", "--sort-by=.lastTimestamp")
}

func (s *story) rejoin() {
	s.Nodes[0].Rejoin()
	s.Kubectl("taint", "node", first, "node.kubernetes.io/out-of-service-")
	s.Nodes[0].Ready(true)
	for name := range claims {
		volume := s.handle(name)
		s.Until("the end of volume "+volume+" on "+first, longer, func() error {
			if left := s.Nodes[0].Records(); len(left) > 0 {
				return fmt.Errorf("it still has %v", left)
			}
			return nil
		})
		s.writesOn("b-"+name, 50)
	}
	for name := range claims {
		n := s.Acked("b-" + name)
		s.Kubectl("delete", "pod", "b-"+name)
		s.Apply(pod("c-"+name, name, first, false, "check", file, fmt.Sprint(n)))
	}
	for name := range claims {
		s.succeeds("c-" + name)
	}
	s.Show("returned-node.txt", "get", "events", "-A", "--sort-by=.lastTimestamp")
}

func (s *story) leave() {
	s.Kubectl("delete", "pods,pvc", "--all", "--timeout=3m")
	for _, kind := range []kindOf{lab.Volumes, lab.Attachments, lab.Multipath} {
		s.None(kind, longer)
	}
	if left := s.Objects(); len(left) > 0 {
		s.t.Fatalf("files are left at the storage host: %v", left)
	}
	out, err := s.Helm("uninstall", release, "--namespace", release, "--wait", "--timeout", "2m")
	s.must(err)
	s.must(os.WriteFile(s.Out+"/helm-uninstall.txt", []byte(out), 0o644))
	s.onlyDefinitions()
}
