package keeper

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/secret"
)

var someID = backend.ID{Pool: "p", Object: "v-abc"}

// someRecord has everything that a record may have.
func someRecord() record {
	epoch := strings.Repeat("0a", 16)
	r := record{volume: someID, tenant: "t", identity: strings.Repeat("1b", 16)}
	r = r.with(publication{node: "b", base: "iqn.2025-01.x:b", epoch: epoch, transport: backend.ISCSI, shared: true,
		auth: backend.Auth{CHAP: backend.CHAP{User: "u", Secret: "the secret", MutualUser: "m", MutualSecret: "the other"}}})
	return r.with(publication{node: "a", base: "iqn.2025-01.x:a", epoch: epoch, transport: backend.ISCSI, readOnly: true, shared: true, revoking: true})
}

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	want := someRecord()
	b, err := want.encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeRecord(b, someID)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

func TestARecordOfVersion1IsRead(t *testing.T) {
	b, err := os.ReadFile("testdata/record-v1.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeRecord(b, someID)
	if err != nil || !reflect.DeepEqual(got, someRecord()) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestWhatIsNotExactlyARecordIsRefused(t *testing.T) {
	good, _ := someRecord().encode()
	for what, change := range map[string]func(string) string{
		"nothing":                  func(string) string { return "" },
		"half of it":               func(s string) string { return s[:len(s)/2] },
		"something behind":         func(s string) string { return s + "{}" },
		"another version":          func(s string) string { return strings.Replace(s, `"version": 1`, `"version": 2`, 1) },
		"another volume":           func(s string) string { return strings.Replace(s, "p.v-abc", "p.v-abd", 1) },
		"an unknown field":         func(s string) string { return strings.Replace(s, `"tenant"`, `"tennant"`, 1) },
		"no tenant":                func(s string) string { return strings.Replace(s, `"tenant": "t"`, `"tenant": ""`, 1) },
		"a short epoch":            func(s string) string { return strings.Replace(s, `"epoch": "0a`, `"epoch": "`, 1) },
		"an epoch with a /":        func(s string) string { return strings.Replace(s, `"epoch": "0a`, `"epoch": "0/`, 1) },
		"a path as node":           func(s string) string { return strings.Replace(s, `"node": "a"`, `"node": "../a"`, 1) },
		"a node twice":             func(s string) string { return strings.Replace(s, `"node": "a"`, `"node": "b"`, 1) },
		"another transport":        func(s string) string { return strings.Replace(s, `"iscsi"`, `"fc"`, 1) },
		"a path as initiator":      func(s string) string { return strings.Replace(s, "x:a", "x:../a", 1) },
		"an identity that is none": func(s string) string { return strings.Replace(s, `"identity": "1b`, `"identity": "xx`, 1) },
	} {
		if r, err := decodeRecord([]byte(change(string(good))), someID); err == nil {
			t.Errorf("%s: read as %v", what, r)
		}
	}
}

func TestErrorsAboutRecordsHaveNoSecrets(t *testing.T) {
	good, _ := someRecord().encode()
	for i := range good {
		b := bytes.Clone(good)
		b[i] = '"'
		if _, err := decodeRecord(b, someID); err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "other")) {
			t.Fatalf("byte %d: %v", i, err)
		}
	}
	if s := fmt.Sprintf("%v %+v", someRecord(), someRecord()); strings.Contains(s, "the secret") {
		t.Errorf("printed: %s", s)
	}
}

func FuzzDecodeRecord(f *testing.F) {
	good, _ := someRecord().encode()
	f.Add(good)
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRecord(b, someID)
		if err != nil {
			return
		}
		again, err := r.encode()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := decodeRecord(again, someID); err != nil || !reflect.DeepEqual(back, r) {
			t.Errorf("%v became %v, %v", r, back, err)
		}
	})
}

func FuzzDecodeFence(f *testing.F) {
	b, _ := fence{"t", "n"}.encode()
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := decodeFence(b)
		if err != nil {
			return
		}
		again, _ := g.encode()
		if back, err := decodeFence(again); err != nil || back != g {
			t.Errorf("%v became %v, %v", g, back, err)
		}
	})
}

func TestTheLargestRecordFitsItsLimit(t *testing.T) {
	r := record{volume: backend.ID{Pool: strings.Repeat("p", backend.MaxPool), Object: strings.Repeat("v", backend.MaxObject)},
		tenant: strings.Repeat("t", backend.MaxObject), identity: nobody}
	for i := range maxPublications {
		text := strings.Repeat("<", backend.MaxSecret) // six bytes each in JSON
		r.pubs = append(r.pubs, publication{node: fmt.Sprintf("%0*d", backend.MaxNode, i), base: "iqn." + strings.Repeat("x", backend.MaxInitiator-4), epoch: nobody, transport: backend.ISCSI,
			readOnly: true, shared: true, revoking: true, auth: backend.Auth{CHAP: backend.CHAP{User: text, Secret: secret.Text(text), MutualUser: text, MutualSecret: secret.Text(text)}}})
	}
	b, err := r.encode()
	if err != nil || len(b) > maxFile {
		t.Errorf("%d bytes, %v; at most %d are read", len(b), err, maxFile)
	}
	if !json.Valid(b) {
		t.Error("it is no JSON")
	}
}
