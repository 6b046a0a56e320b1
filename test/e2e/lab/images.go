package lab

import (
	"os"
	"sync"
)

// Images are the names of those that the tests import, by what they are.
var Images = map[string]string{
	"pause":       "localhost/pause:e2e",
	"app":         "localhost/app:e2e",
	"driver":      "localhost/csi-mpath:e2e",
	"provisioner": "localhost/csi-provisioner:e2e",
	"attacher":    "localhost/csi-attacher:e2e",
	"resizer":     "localhost/csi-resizer:e2e",
	"snapshotter": "localhost/csi-snapshotter:e2e",
}

// load gives both nodes the images: there is no registry. The driver's is the one that
// make image made.
func (l *Lab) load() {
	l.t.Helper()
	own := []Image{
		{Names: []string{Images["pause"]}, Files: map[string]string{"/pod": l.bin("pod")}, Entrypoint: []string{"/pod", "pause"}},
		{Names: []string{Images["app"]}, Files: map[string]string{"/pod": l.bin("pod"), "/bin/busybox": "/bin/busybox"}, Links: busybox(), Entrypoint: []string{"/pod"}},
	}
	for _, s := range []string{"provisioner", "attacher", "resizer", "snapshotter"} {
		own = append(own, Image{Names: []string{Images[s]}, Files: map[string]string{"/csi-" + s: l.bin("csi-" + s)}, Entrypoint: []string{"/csi-" + s}})
	}
	l.must(archive(l.path("images.tar"), own...))
	var all sync.WaitGroup
	errs := make(chan error, 2*len(l.Nodes))
	for _, n := range l.Nodes {
		for _, tar := range []string{l.path("images.tar"), os.Getenv("E2E_IMAGE")} {
			all.Go(func() {
				_, err := l.run("ctr", "-a", n.socket(), "-n", "k8s.io", "images", "import", tar)
				errs <- err
			})
		}
	}
	all.Wait()
	for range 2 * len(l.Nodes) {
		l.must(<-errs)
	}
	l.must(os.Remove(l.path("images.tar")))
}
