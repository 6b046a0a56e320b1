// Package chart renders the chart as helm does, without a cluster.
package chart

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/yaml"
)

// Dir is the chart's directory, from this module's root.
const Dir = "../../charts/csi-mpath"

// Kubernetes is the version that the chart is tried with.
const Kubernetes = "v1.37.2"

// Options say for whom a chart is rendered.
type Options struct {
	Release, Namespace string
	// APIs that the cluster has besides those of helm's own list.
	APIs []string
	// Kubernetes is the cluster's version; empty: Kubernetes.
	Kubernetes string
}

// Load reads the chart in a directory.
func Load(dir string) (*chart.Chart, error) { return loader.LoadDir(dir) }

// Render makes what helm would, by template, hooks and notes too. Values are checked
// by the chart's schema, as helm does.
func Render(c *chart.Chart, values []byte, o Options) (map[string]string, error) {
	var user map[string]any
	if err := yaml.Unmarshal(values, &user); err != nil {
		return nil, fmt.Errorf("values: %w", err)
	}
	caps := chartutil.DefaultCapabilities.Copy()
	caps.APIVersions = append(slices.Clone(caps.APIVersions), o.APIs...)
	v, err := chartutil.ParseKubeVersion(cmp.Or(o.Kubernetes, Kubernetes))
	if err != nil {
		return nil, err
	}
	caps.KubeVersion = *v
	if want := c.Metadata.KubeVersion; want != "" && !chartutil.IsCompatibleRange(want, caps.KubeVersion.String()) {
		return nil, fmt.Errorf("the chart wants Kubernetes %s, the cluster is %s", want, caps.KubeVersion.String())
	}
	all, err := chartutil.ToRenderValues(c, user, chartutil.ReleaseOptions{Name: o.Release, Namespace: o.Namespace, Revision: 1, IsInstall: true}, caps)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}

// Documents are the rendered objects, in the order of the templates' names, each a
// YAML document. Notes are none.
func Documents(rendered map[string]string) (docs []string) {
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		if path.Ext(name) != ".yaml" {
			continue
		}
		for doc := range strings.SplitSeq("\n"+rendered[name], "\n---") {
			if doc = strings.TrimSpace(doc); !onlyComments(doc) {
				docs = append(docs, doc+"\n")
			}
		}
	}
	return docs
}

func onlyComments(doc string) bool {
	for line := range strings.SplitSeq(doc, "\n") {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return false
		}
	}
	return true
}

// Manifest is what kubectl applies of rendered objects: all but hooks and tests, which
// only helm understands, and the namespace that they go into.
func Manifest(namespace string, docs []string) string {
	out := []string{`# Made of charts/csi-mpath by 'make chart': the chart's defaults, for those without helm.
# Take the container csi-snapshotter out if your cluster has no snapshot CRDs.
apiVersion: v1
kind: Namespace
metadata:
  name: ` + namespace + `
  labels:
    # The node plugin mounts file systems for pods: it is privileged.
    pod-security.kubernetes.io/enforce: privileged
`}
	for _, d := range docs {
		if !strings.Contains(d, "helm.sh/hook:") {
			out = append(out, strings.NewReplacer("managed-by: Helm", "managed-by: kubectl").Replace(d))
		}
	}
	return strings.Join(out, "---\n")
}
