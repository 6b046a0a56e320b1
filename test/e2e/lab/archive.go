package lab

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
)

// Image is one of an archive: files of this machine, in one layer.
type Image struct {
	Names      []string
	Files      map[string]string // path in the image: path here
	Links      map[string]string // path in the image: what it points to
	Entrypoint []string
	Env        []string
}

// archive writes images as docker save does, which ctr images import reads. Layers
// are not compressed: nobody sends them anywhere.
func archive(at string, images ...Image) error {
	f, err := os.Create(at)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // Close below is the one that counts
	w := tar.NewWriter(f)
	var manifest []any
	for i, img := range images {
		layer := fmt.Sprintf("layer-%d.tar", i)
		sum, err := img.layer(w, layer)
		if err != nil {
			return fmt.Errorf("image %v: %w", img.Names, err)
		}
		config := fmt.Sprintf("config-%d.json", i)
		text, err := json.Marshal(map[string]any{"architecture": runtime.GOARCH, "os": "linux",
			"config": map[string]any{"Entrypoint": img.Entrypoint, "Env": append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, img.Env...)},
			"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + sum}}})
		if err == nil {
			err = put(w, config, text)
		}
		if err != nil {
			return err
		}
		manifest = append(manifest, map[string]any{"Config": config, "RepoTags": img.Names, "Layers": []string{layer}})
	}
	text, err := json.Marshal(manifest)
	if err == nil {
		err = put(w, "manifest.json", text)
	}
	if err == nil {
		err = w.Close()
	}
	if err == nil {
		err = f.Close()
	}
	return err
}

func put(w *tar.Writer, name string, text []byte) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
		return err
	}
	_, err := w.Write(text)
	return err
}

// layer writes the image's one, and returns its digest.
func (img Image) layer(w *tar.Writer, name string) (string, error) {
	f, err := os.CreateTemp("", "layer")
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // in a directory that is removed
	defer f.Close()           //nolint:errcheck // only read from here
	sum := sha256.New()
	inner := tar.NewWriter(io.MultiWriter(f, sum))
	if err := img.content(inner); err != nil {
		return "", err
	}
	size, err := f.Seek(0, io.SeekCurrent)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err == nil {
		err = w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size})
	}
	if err == nil {
		_, err = io.Copy(w, f)
	}
	return hex.EncodeToString(sum.Sum(nil)), err
}

func (img Image) content(w *tar.Writer) error {
	for _, dir := range []string{"tmp/", "etc/"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o1777}); err != nil {
			return err
		}
	}
	if err := put(w, "etc/passwd", []byte("root:x:0:0::/:/bin/sh\n")); err != nil {
		return err
	}
	for to, from := range img.Files {
		b, err := os.ReadFile(from)
		if err == nil {
			err = w.WriteHeader(&tar.Header{Name: to[1:], Mode: 0o755, Size: int64(len(b))})
		}
		if err == nil {
			_, err = io.Copy(w, bytes.NewReader(b))
		}
		if err != nil {
			return err
		}
	}
	for at, to := range img.Links {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: at[1:], Linkname: to}); err != nil {
			return err
		}
	}
	return w.Close()
}

// busybox are the names by which pods call its applets.
func busybox() map[string]string {
	links := map[string]string{}
	for _, a := range []string{"sh", "cat", "ls", "dd", "df", "sync", "stat", "sleep", "grep", "mount", "touch", "mkdir", "rm", "sha256sum", "head", "tail", "test", "chmod", "date", "true", "id", "wc", "tr", "env"} {
		links[filepath.Join("/bin", a)] = "busybox"
	}
	return links
}
