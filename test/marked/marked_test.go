package marked

import (
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

func TestSecretsAreSeenInEachForm(t *testing.T) {
	if err := Check(); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{Node, Array, Wrong, Short, Others, Host, Controller, "x" + Node, "xy" + Node} {
		for _, form := range []string{s, hex.EncodeToString([]byte(s)), base64.StdEncoding.EncodeToString([]byte(s)), `{"a":"` + s + `"}`} {
			isKey := s == Host || s == Controller // which nobody writes in yet another base
			if !In([]byte(form)) && !(isKey && len(form) != len(s)) {
				t.Errorf("%q is not seen", form)
			}
		}
	}
	if In([]byte("node array dhchap-secret DHHC-1:01:")) {
		t.Error("something is seen where nothing is")
	}
}

func TestEveryCallThatTakesSecretsGetsThem(t *testing.T) {
	r := &csi.NodeStageVolumeRequest{}
	if !fill(r.ProtoReflect(), Right()) || r.Secrets["node.session.auth.password"] != Node {
		t.Errorf("%v", r)
	}
	if fill((&csi.NodeUnstageVolumeRequest{}).ProtoReflect(), Right()) {
		t.Error("a call without secrets has some")
	}
}

func TestAFileWithASecretIsFoundWhereItMayNotBe(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"open": 0o644, "owners": 0o600, "elsewhere": 0o600} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(Node), mode); err != nil {
			t.Fatal(err)
		}
	}
	found, err := Files(dir, func(path string) bool { return path != "elsewhere" })
	if err != nil || len(found) != 2 {
		t.Errorf("%v, %v", found, err)
	}
}
