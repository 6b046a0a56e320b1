package lab

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestAnArchiveSaysWhereEachImagesLayerIs(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("#!"), 0o755); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, "images.tar")
	if err := archive(at, Image{Names: []string{"localhost/a:1"}, Files: map[string]string{"/p": program}, Entrypoint: []string{"/p"}}, Image{Names: []string{"localhost/b:1"}}); err != nil {
		t.Fatal(err)
	}
	files := read(t, at)
	var manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	if err := json.Unmarshal(files["manifest.json"], &manifest); err != nil || len(manifest) != 2 {
		t.Fatalf("manifest %s, %v", files["manifest.json"], err)
	}
	for _, m := range manifest {
		if files[m.Config] == nil || files[m.Layers[0]] == nil || len(m.RepoTags) != 1 {
			t.Errorf("%+v names what is not there", m)
		}
	}
}

func read(t *testing.T, at string) map[string][]byte {
	t.Helper()
	f, err := os.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := map[string][]byte{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if out[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}
