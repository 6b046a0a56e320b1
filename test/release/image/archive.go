package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// searchPath is PATH in the image: where pkg/program looks.
const searchPath = "/usr/sbin:/usr/bin:/sbin:/bin"

// writeArchive writes an OCI layout of the platforms' images as one archive: of one
// platform its image, of several an index.
func writeArchive(out, name, version string, all []*platform) error {
	var images []mutate.IndexAddendum
	for _, p := range all {
		img, err := p.image(version)
		if err != nil {
			return err
		}
		images = append(images, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: p.arch}}})
	}
	top := images[0]
	if len(images) > 1 {
		top = mutate.IndexAddendum{Add: mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), images...)}
	}
	// Where ctr and skopeo look for its name.
	_, tag, _ := strings.Cut(name[strings.LastIndexByte(name, '/')+1:], ":")
	top.Annotations = map[string]string{"io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag}
	dir, err := os.MkdirTemp("", "oci")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if _, err := layout.Write(dir, mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), top)); err != nil {
		return err
	}
	return pack(dir, out)
}

// image is one platform's: what Debian made, which rarely changes, and csi-mpath.
func (p *platform) image(version string) (v1.Image, error) {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, files := range [][]file{p.debian, p.ours} {
		b, err := layerOf(files)
		if err != nil {
			return nil, err
		}
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, err
		}
		if img, err = mutate.AppendLayers(img, l); err != nil {
			return nil, err
		}
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	cfg.Architecture, cfg.OS, cfg.Created = p.arch, "linux", v1.Time{Time: time.Unix(0, 0).UTC()}
	cfg.Config = v1.Config{Entrypoint: []string{"/usr/bin/csi-mpath"}, Env: []string{"PATH=" + searchPath}, User: "65532:65532", WorkingDir: "/",
		Labels: map[string]string{"org.opencontainers.image.title": "csi-mpath", "org.opencontainers.image.version": version,
			"org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.source": "https://github.com/csi-mpath/csi-mpath"}}
	return mutate.ConfigFile(img, cfg)
}

// layerOf is an archive of files, sorted, with their directories, of root and of no
// time.
func layerOf(files []file) ([]byte, error) {
	byPath := map[string]file{}
	for _, f := range files {
		byPath[f.path] = f
		for d := path.Dir(strings.TrimSuffix(f.path, "/")); d != "."; d = path.Dir(d) {
			if _, is := byPath[d+"/"]; !is {
				byPath[d+"/"] = file{path: d + "/", mode: 0o755}
			}
		}
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, p := range sortedKeys(byPath) {
		if err := add(w, byPath[p]); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
}

func sortedKeys(m map[string]file) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func add(w *tar.Writer, f file) error {
	h := &tar.Header{Name: f.path, Mode: int64(f.mode.Perm()), Size: int64(len(f.data)), ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR, Typeflag: tar.TypeReg}
	switch {
	case strings.HasSuffix(f.path, "/"):
		h.Typeflag = tar.TypeDir
		if f.mode&fs.ModeSticky != 0 {
			h.Mode |= 0o1000
		}
	case f.link != "":
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.link, 0o777
	}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err := w.Write(f.data)
	return err
}

// pack makes an archive of a directory, sorted and of no time. It appears whole.
func pack(dir, out string) error {
	tmp, err := os.CreateTemp(filepath.Dir(out), ".image")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	w := tar.NewWriter(tmp)
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return add(w, file{path: filepath.ToSlash(rel) + "/", mode: 0o755})
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		return add(w, file{path: filepath.ToSlash(rel), mode: 0o644, data: b})
	})
	if err := errors.Join(err, w.Close(), tmp.Chmod(0o644), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), out)
}
