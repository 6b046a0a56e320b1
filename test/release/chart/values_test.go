package chart

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const page = "../../../docs/values.md"

func TestThePageOfValuesIsFresh(t *testing.T) {
	golden(t, page, Values(string(text(t, filepath.Join("..", Dir, "values.yaml")))))
}

// leaves are the paths of what a value is: maps that are empty by default count.
func leaves(prefix string, v any) (out []string) {
	m, is := v.(map[string]any)
	if !is || len(m) == 0 {
		return []string{prefix}
	}
	for k, x := range m {
		out = append(out, leaves(strings.TrimPrefix(prefix+"."+k, "."), x)...)
	}
	return out
}

func TestEveryValueIsOnThePage(t *testing.T) {
	var all map[string]any
	if err := yaml.Unmarshal(text(t, filepath.Join("..", Dir, "values.yaml")), &all); err != nil {
		t.Fatal(err)
	}
	have := string(text(t, page))
	for _, leaf := range leaves("", all) {
		// What is written as one line, {a: 1}, is on the page as that.
		found := false
		for k := leaf; k != ""; k = k[:max(0, strings.LastIndexByte(k, '.'))] {
			found = found || strings.Contains(have, "| `"+k+"` |")
		}
		if !found {
			t.Errorf("%s is not on the page", leaf)
		}
	}
}

// schema is what a part of values.schema.json says.
type schema struct {
	Properties           map[string]schema `json:"properties"`
	AdditionalProperties any               `json:"additionalProperties"`
	Type                 any               `json:"type"`
	Ref                  string            `json:"$ref"`
}

func TestTheSchemaHasExactlyTheKeysOfTheValues(t *testing.T) {
	var s schema
	if err := json.Unmarshal(text(t, filepath.Join("..", Dir, "values.schema.json")), &s); err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := yaml.Unmarshal(text(t, filepath.Join("..", Dir, "values.yaml")), &all); err != nil {
		t.Fatal(err)
	}
	delete(s.Properties, "global") // of charts that have this one inside
	compare(t, "", s, all)
}

func compare(t *testing.T, at string, s schema, v map[string]any) {
	t.Helper()
	if s.Ref != "" || len(s.Properties) == 0 {
		return // a map of somebody else: labels, resources
	}
	if s.AdditionalProperties != false {
		t.Errorf("%q lets unknown keys in", at)
	}
	for k := range v {
		if _, is := s.Properties[k]; !is {
			t.Errorf("%s.%s is in values.yaml and not in the schema", at, k)
		}
	}
	for k, below := range s.Properties {
		x, is := v[k]
		if !is {
			t.Errorf("%s.%s is in the schema and not in values.yaml", at, k)
		}
		if m, is := x.(map[string]any); is {
			compare(t, at+"."+k, below, m)
		}
	}
}

func TestTheReaderOfValuesTakesCommentsListsAndMaps(t *testing.T) {
	got := parseValues("# no\n\n# -- One.\n# Two.\na: 1\nb:\n  # -- Three.\n  c: {}\n  d:\n  - {x: y}\n# -- Four.\ne:\n  f: []\n")
	want := []value{{"a", "1", "One. Two."}, {"b.c", "{}", "Three."}, {"b.d", "[{x: y}]", ""}, {"e.f", "[]", ""}}
	if !slices.Equal(got, want) {
		t.Fatalf("%+v", got)
	}
}
