package v1alpha1

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

type object = map[string]any

// at follows names into a parsed document.
func at(t *testing.T, in any, path ...string) any {
	t.Helper()
	for _, k := range path {
		m, is := in.(object)
		if !is || m[k] == nil {
			t.Fatalf("there is no %s of %v", k, path)
		}
		in = m[k]
	}
	return in
}

// definition is the CustomResourceDefinition.
func definition(t *testing.T) object {
	t.Helper()
	text, err := os.ReadFile("../../../deploy/crd/csi-mpath.io_multipathvolumes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	out := object{}
	if err := yaml.UnmarshalStrict(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// version is its one version.
func version(t *testing.T) any { return at(t, definition(t), "spec", "versions").([]any)[0] }

// differences are those of a type and a schema.
func differences(where string, typ reflect.Type, schema any) (out []string) {
	s, is := schema.(object)
	if !is {
		return []string{where + ": no schema"}
	}
	kind := map[reflect.Kind]string{reflect.String: "string", reflect.Bool: "boolean", reflect.Int64: "integer", reflect.Slice: "array",
		reflect.Map: "object", reflect.Struct: "object"}[typ.Kind()]
	if typ == reflect.TypeFor[meta.Time]() {
		kind = "string"
	}
	if s["type"] != kind {
		return []string{fmt.Sprintf("%s: %v in the schema, %s in Go", where, s["type"], kind)}
	}
	switch {
	case typ.Kind() == reflect.Slice:
		return differences(where+"[]", typ.Elem(), s["items"])
	case typ.Kind() == reflect.Map:
		return differences(where+"{}", typ.Elem(), s["additionalProperties"])
	case typ.Kind() != reflect.Struct || kind == "string" || typ == reflect.TypeFor[meta.ObjectMeta]():
		return nil
	}
	return fields(where, typ, s)
}

// fields compares those of a struct.
func fields(where string, typ reflect.Type, s object) (out []string) {
	properties, _ := s["properties"].(object)
	known, required := map[string]bool{}, []string{}
	for _, f := range reflect.VisibleFields(typ) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || len(f.Index) > 1 && typ.Field(f.Index[0]).Name == "ObjectMeta" {
			continue
		}
		known[name] = true
		if options == "" {
			required = append(required, name)
		}
		out = append(out, differences(where+"."+name, f.Type, properties[name])...)
	}
	for name := range properties {
		if !known[name] {
			out = append(out, where+"."+name+": not in Go")
		}
	}
	listed, _ := s["required"].([]any)
	for _, name := range required {
		if !slices.Contains(listed, any(name)) {
			out = append(out, where+"."+name+": Go always writes it, and the schema does not require it")
		}
	}
	if len(listed) > len(required) {
		out = append(out, fmt.Sprintf("%s: the schema requires %v, Go writes %v", where, listed, required))
	}
	return out
}

func TestTheSchemaIsThatOfTheTypes(t *testing.T) {
	for _, d := range differences("MultipathVolume", reflect.TypeFor[MultipathVolume](), at(t, version(t), "schema", "openAPIV3Schema")) {
		t.Error(d)
	}
}

func TestTheComparisonFindsWhatDiffers(t *testing.T) {
	for _, spoil := range []func(spec object){
		func(s object) { delete(s["properties"].(object), "node") },
		func(s object) { s["properties"].(object)["new"] = object{"type": "string"} },
		func(s object) { s["properties"].(object)["volume"].(object)["type"] = "integer" },
		func(s object) { s["required"] = []any{"volume"} },
		func(s object) { s["required"] = []any{"volume", "node", "tunables"} },
	} {
		schema := at(t, version(t), "schema", "openAPIV3Schema")
		spoil(at(t, schema, "properties", "spec").(object))
		if d := differences("x", reflect.TypeFor[MultipathVolume](), schema); len(d) != 1 {
			t.Errorf("got %v, want one difference", d)
		}
	}
}

// TestTheColumnsExist: kubectl prints nothing for one that does not.
func TestTheColumnsExist(t *testing.T) {
	v := version(t)
	for _, c := range at(t, v, "additionalPrinterColumns").([]any) {
		path := strings.Split(strings.TrimPrefix(c.(object)["jsonPath"].(string), "."), ".")
		if path[0] == "metadata" {
			continue
		}
		at(t, v, "schema", "openAPIV3Schema", "properties", path[0], "properties", path[1])
	}
	if got := at(t, definition(t), "spec", "group"); got != GroupVersion.Group || at(t, v, "name") != GroupVersion.Version ||
		at(t, definition(t), "spec", "names", "plural") != Resource.Resource {
		t.Error("the definition has other names than the code")
	}
}

func TestACopySharesNothing(t *testing.T) {
	made := func() *MultipathVolumeList {
		return &MultipathVolumeList{Items: []MultipathVolume{{ObjectMeta: meta.ObjectMeta{Labels: map[string]string{"a": "b"}},
			Spec:   MultipathVolumeSpec{Tunables: map[string]string{"c": "d"}, Portals: []string{"q"}},
			Status: MultipathVolumeStatus{Paths: []PathStatus{{Portal: "p", Since: meta.NewTime(time.Unix(1, 0))}}, Conditions: []meta.Condition{{Type: Redundant}}, Notes: []Note{{Reason: "r"}}}}}}
	}
	from := made()
	v := &from.DeepCopyObject().(*MultipathVolumeList).Items[0]
	if !reflect.DeepEqual(v, &made().Items[0]) || !reflect.DeepEqual(v.DeepCopyObject(), runtime.Object(v)) {
		t.Errorf("got %+v", v)
	}
	v.Labels["a"], v.Spec.Tunables["c"], v.Status.Paths[0].Portal, v.Status.Conditions[0].Type = "x", "x", "x", "x"
	v.Spec.Portals[0], v.Status.Notes[0].Reason = "x", "x"
	if !reflect.DeepEqual(from, made()) {
		t.Errorf("the original became %+v", from)
	}
}

func TestASchemeKnowsTheTypes(t *testing.T) {
	s := runtime.NewScheme()
	if err := AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"MultipathVolume", "MultipathVolumeList"} {
		if _, err := s.New(GroupVersion.WithKind(kind)); err != nil {
			t.Error(err)
		}
	}
}
