package chart

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files again")

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := Load(filepath.Join("..", Dir))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func text(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func render(t *testing.T, values string, o Options) map[string]string {
	t.Helper()
	out, err := Render(load(t), []byte(values), o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// golden compares with a file, or writes it.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if want := string(text(t, path)); got != want {
		t.Errorf("%s is stale: look at the difference, then 'make chart'; first difference:\n%s", path, firstDifference(want, got))
	}
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		a, b := at(w, i), at(g, i)
		if a != b {
			return "- " + a + "\n+ " + b
		}
	}
	return ""
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(end)"
}

// examples are values, each with what its cluster has.
func examples(t *testing.T) map[string]Options {
	t.Helper()
	all, err := filepath.Glob("testdata/values/*.yaml")
	if err != nil || len(all) < 4 {
		t.Fatal(all, err)
	}
	out := map[string]Options{}
	for _, f := range all {
		o := Options{Release: "csi-mpath", Namespace: "csi-mpath"}
		if f == "testdata/values/full.yaml" {
			o = Options{Release: "mine", Namespace: "storage", APIs: []string{"snapshot.storage.k8s.io/v1"}, Kubernetes: "v1.32.0"}
		}
		out[f] = o
	}
	return out
}

func TestWhatTheChartMakesOfValues(t *testing.T) {
	for f, o := range examples(t) {
		out := render(t, string(text(t, f)), o)
		docs := Documents(out)
		notes := out["csi-mpath/templates/NOTES.txt"]
		golden(t, "testdata/golden/"+filepath.Base(f), strings.Join(docs, "---\n"))
		golden(t, "testdata/golden/"+strings.TrimSuffix(filepath.Base(f), ".yaml")+".notes.txt", notes)
	}
}

func TestTheManifestOfDeployIsFresh(t *testing.T) {
	docs := Documents(render(t, "", Options{Release: "csi-mpath", Namespace: "csi-mpath", APIs: []string{"snapshot.storage.k8s.io/v1"}}))
	golden(t, "../../../deploy/csi-mpath.yaml", Manifest("csi-mpath", docs))
}

// object is a rendered document.
type object struct {
	APIVersion, Kind string
	Metadata         struct {
		Name, Namespace     string
		Labels, Annotations map[string]string
	}
}

func objects(t *testing.T, docs []string) (out []object) {
	t.Helper()
	for _, d := range docs {
		var o object
		if err := yaml.UnmarshalStrict([]byte(d), new(map[string]any)); err != nil {
			t.Fatalf("%v in\n%s", err, d)
		}
		if err := yaml.Unmarshal([]byte(d), &o); err != nil {
			t.Fatalf("%v in\n%s", err, d)
		}
		out = append(out, o)
	}
	return out
}

func TestEveryObjectHasAKindANameAndOurLabels(t *testing.T) {
	for f, opt := range examples(t) {
		seen := map[string]bool{}
		for _, o := range objects(t, Documents(render(t, string(text(t, f)), opt))) {
			key := o.APIVersion + " " + o.Kind + " " + o.Metadata.Namespace + "/" + o.Metadata.Name
			if o.Kind == "" || o.Metadata.Name == "" || seen[key] || o.Metadata.Labels["app.kubernetes.io/instance"] != opt.Release {
				t.Errorf("%s: %q, seen %v, labels %v", f, key, seen[key], o.Metadata.Labels)
			}
			seen[key] = true
		}
	}
}

func TestTheCRDStaysWhenTheChartGoes(t *testing.T) {
	for _, o := range objects(t, Documents(render(t, "", Options{Release: "csi-mpath", Namespace: "csi-mpath"}))) {
		if o.Kind == "CustomResourceDefinition" && o.Metadata.Annotations["helm.sh/resource-policy"] == "keep" {
			return
		}
	}
	t.Fatal("no CRD that is kept")
}

func TestTheChartsCRDIsTheOneOfTheAPI(t *testing.T) {
	const name = "csi-mpath.io_multipathvolumes.yaml"
	if string(text(t, "../../../deploy/crd/"+name)) != string(text(t, filepath.Join("..", Dir, "files", name))) {
		t.Fatal("deploy/crd changed: 'make chart' copies it")
	}
}

func TestWrongValuesAreRefusedByName(t *testing.T) {
	wrong := map[string]string{
		"contoller: {replicas: 3}":                                         "contoller",
		"controller: {replica: 3}":                                         "replica",
		"controller: {replicas: 0}":                                        "replicas",
		"node: {attach: iscsi}":                                            "attach",
		"node: {kubeletDir: var/lib}":                                      "kubeletDir",
		"node: {resources: {limit: {memory: 1Gi}}}":                        "limit",
		"image: {tag: 1.0}":                                                "tag",
		"image: {digest: sha256:1}":                                        "digest",
		"backends: [{name: East, agent: {address: 'a:1'}}]":                "name",
		"backends: [{name: east}]":                                         "agent",
		"backends: [{name: east, agent: {address: host}}]":                 "address",
		"backends: [{name: east, agent: {address: 'h:1'}}]":                "agent.secretName",
		"backends: [{name: e, agent: {address: 'h:1', pki: {ca.crt: x}}}]": "tls.crt",
		"backends: [{name: e, agent: {address: 'h:1', secretName: s, pki: {ca.crt: x, tls.crt: x, tls.key: x}}}]": "both",
		"storageClasses: [{parameters: {}}]":                                      "name",
		"storageClasses: [{name: a, reclaim: Delete}]":                            "reclaim",
		"storageClasses: [{name: a, volumeBindingMode: Late}]":                    "volumeBindingMode",
		"volumeAttributesClasses: [{name: a}]":                                    "parameters",
		"storageClasses: [{name: a, parameters: {minPaths: 1.5}}]":                "minPaths",
		"sidecars: {healthmonitor: {}}":                                           "healthmonitor",
		"sidecars: {provisioner: {timeout: 60}}":                                  "timeout",
		"sidecars: {snapshotter: {enabled: yes-please}}":                          "enabled",
		"metrics: {serviceMonitor: {enabled: true}, podMonitor: {enabled: true}}": "counted twice",
		"demo: {enabled: true, size: 10}":                                         "size",
		"demo: {enabled: true, hostNetwork: true}":                                "demo.address",
		"rbac: {secrets: [{namespace: a}]}":                                       "names",
		"csiDriver: {fsGroupPolicy: file}":                                        "fsGroupPolicy",
	}
	c := load(t)
	for _, values := range slices.Sorted(maps.Keys(wrong)) {
		_, err := Render(c, []byte(values), Options{Release: "csi-mpath", Namespace: "csi-mpath"})
		if err == nil || !strings.Contains(err.Error(), wrong[values]) {
			t.Errorf("%s: %v, want it to name %q", values, err, wrong[values])
		}
	}
}

func TestAnOlderKubernetesIsRefused(t *testing.T) {
	if _, err := Render(load(t), nil, Options{Release: "a", Namespace: "a", Kubernetes: "v1.29.9"}); err == nil {
		t.Fatal("1.29 was taken")
	}
}
