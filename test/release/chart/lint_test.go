package chart

import (
	"path/filepath"
	"testing"

	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"sigs.k8s.io/yaml"
)

func TestHelmLintHasNothingToSay(t *testing.T) {
	for f, o := range examples(t) {
		var values map[string]any
		if err := yaml.Unmarshal(text(t, f), &values); err != nil {
			t.Fatal(err)
		}
		for _, m := range lint.All(filepath.Join("..", Dir), values, o.Namespace, false).Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %s", f, m)
			}
		}
	}
}
