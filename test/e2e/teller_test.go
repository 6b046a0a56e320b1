//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/csi-mpath/csi-mpath/test/e2e/lab"
)

// story tells what happens to volumes in a cluster.
type story struct {
	*lab.Lab
	t *testing.T
}

// in has a chapter fail in its own test.
func (s *story) in(t *testing.T, tell func()) {
	before := s.t
	s.t = t
	defer func() { s.t = before }()
	s.Within(t, tell)
}

func (s *story) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// values are the chart's, as somebody with one storage host would write them.
func (s *story) values() string {
	image := func(what string) map[string]any {
		name, tag, _ := strings.Cut(lab.Images[what], ":")
		return map[string]any{"repository": name, "tag": tag}
	}
	sidecars := map[string]any{}
	for _, c := range []string{"provisioner", "attacher", "resizer", "snapshotter"} {
		sidecars[c] = map[string]any{"image": image(c)}
	}
	class := func(transport string) map[string]any {
		return map[string]any{"name": transport, "parameters": map[string]string{
			"backend": "east", "pool": lab.Pool, "transport": transport, "csi.storage.k8s.io/fstype": "xfs"}}
	}
	text, err := json.Marshal(map[string]any{
		"image": image("driver"), "sidecars": sidecars, "backends": []any{s.Agent()},
		// Both nodes have the kernel's loop devices, so their files need different names.
		"node":                    map[string]any{"attach": "fuse", "loadModule": false, "extraArgs": []string{"--state-dir=" + s.StateDir("$(NODE_ID)")}},
		"storageClasses":          []any{class("iscsi"), class("nvme-tcp")},
		"volumeSnapshotClasses":   []any{map[string]any{"name": "csi-mpath"}},
		"volumeAttributesClasses": []any{attributes("streaming", "mergeDeadline", "2ms"), attributes("wrong", "mergeDeadline", "10s")},
	})
	s.must(err)
	at := filepath.Join(s.Dir, "values.json")
	s.must(os.WriteFile(at, text, 0o600))
	return at
}

func attributes(name, key, value string) map[string]any {
	return map[string]any{"name": name, "parameters": map[string]string{key: value}}
}

// claim describes a claim. source is a data source, or "".
func claim(name, class, size, mode, source string) string {
	if source != "" {
		source = "\n  dataSource: " + source
	}
	return fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s}
spec:
  storageClassName: %s
  volumeMode: %s
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: %s}}%s
---
`, name, class, mode, size, source)
}

// pod describes a pod that has a claim at /data, or as a block device at /dev/data,
// and runs pod with arguments, on a node or, for "", anywhere.
func pod(name, of, node string, block bool, args ...string) string {
	use, where := "volumeMounts: [{name: data, mountPath: /data}]", ""
	if block {
		use = "volumeDevices: [{name: data, devicePath: /dev/data}]"
	}
	if node != "" {
		where = "\n  nodeSelector: {kubernetes.io/hostname: " + node + "}"
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 10
  containers:
  - name: app
    image: %s
    args: [%s]
    %s
  volumes: [{name: data, persistentVolumeClaim: {claimName: %s}}]%s
---
`, name, lab.Images["app"], `"`+strings.Join(args, `", "`)+`"`, use, of, where)
}

// acked is the last record that a writer said is written.
func acked(log string) (n uint64, err error) {
	i := strings.LastIndex(log, "acked ")
	if i < 0 {
		return 0, fmt.Errorf("no record is acknowledged yet: %q", log)
	}
	return strconv.ParseUint(strings.Fields(log[i:])[1], 10, 64)
}

// Acked is the last record that pod name said is written.
func (s *story) Acked(name string) uint64 {
	s.t.Helper()
	n, err := acked(s.Kubectl("logs", name, "--tail=5"))
	s.must(err)
	return n
}

// writesOn waits until pod name has written so many more records.
func (s *story) writesOn(name string, more uint64) {
	s.t.Helper()
	from := s.Acked(name)
	s.Until(fmt.Sprintf("pod %s to write %d more records", name, more), longer, func() error {
		log, err := s.Try("logs", name, "--tail=5")
		if err != nil {
			return err
		}
		if n, err := acked(log); err != nil || n < from+more {
			return fmt.Errorf("it was at %d and is at %d, %w", from, n, err)
		}
		return nil
	})
}

// runs waits until pods run.
func (s *story) runs(names ...string) {
	s.t.Helper()
	for _, n := range names {
		s.Has(lab.Pods, n, longer, "Running", "status", "phase")
	}
}

// succeeds waits until pods ended well.
func (s *story) succeeds(names ...string) {
	s.t.Helper()
	for _, n := range names {
		s.Until("the good end of pod "+n, longer, func() error {
			o, err := s.Object(lab.Pods, n)
			if err != nil {
				return err
			}
			phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
			if phase == "Failed" {
				s.t.Fatalf("pod %s failed: %s", n, s.Kubectl("logs", n))
			}
			if phase != "Succeeded" {
				return fmt.Errorf("it is %s", phase)
			}
			return nil
		})
	}
}

// handle is the CSI volume of a claim.
func (s *story) handle(of string) string {
	s.t.Helper()
	o, err := s.Object(lab.Claims, of)
	s.must(err)
	name, _, err := unstructured.NestedString(o.Object, "spec", "volumeName")
	s.must(err)
	o, err = s.Object(lab.Volumes, name)
	s.must(err)
	id, _, err := unstructured.NestedString(o.Object, "spec", "csi", "volumeHandle")
	s.must(err)
	return id
}

// multipath is the object of a volume on a node; nil if there is none.
func (s *story) multipath(volume, node string) (*unstructured.Unstructured, error) {
	all, err := s.All(lab.Multipath)
	for _, o := range all {
		v, _, _ := unstructured.NestedString(o.Object, "spec", "volume")
		n, _, _ := unstructured.NestedString(o.Object, "spec", "node")
		if v == volume && n == node {
			return &o, nil
		}
	}
	return nil, err
}

// is waits until a volume on a node is in a state.
func (s *story) is(volume, node, state string) {
	s.t.Helper()
	s.Until(fmt.Sprintf("volume %s on %s to be %s", volume, node, state), longer, func() error {
		o, err := s.multipath(volume, node)
		if err != nil || o == nil {
			return fmt.Errorf("no object: %w", err)
		}
		if got, _, _ := unstructured.NestedString(o.Object, "status", "state"); got != state {
			return fmt.Errorf("its status: %v", o.Object["status"])
		}
		return nil
	})
}

// event waits for an event of an object that has a reason and a text in its note.
func (s *story) event(kind, name, reason, note string) {
	s.t.Helper()
	s.Until(fmt.Sprintf("event %s of %s %s", reason, kind, name), longer, func() error {
		out, err := s.Try("get", "events", "-A", "--field-selector", "involvedObject.kind="+kind+",involvedObject.name="+name, "-o", `jsonpath={range .items[*]}{.reason}: {.message}{"\n"}{end}`)
		if err != nil {
			return err
		}
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, reason+":") && strings.Contains(line, note) {
				return nil
			}
		}
		return fmt.Errorf("its events:\n%s", out)
	})
}
