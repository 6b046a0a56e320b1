// Command image makes the container image without a container engine: csi-mpath and
// the few programs that it runs, from Debian's packages, in an archive that
// `ctr images import`, `docker load`, podman and skopeo take. The same packages and
// the same binary give the same bytes.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("image: ")
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

// options are the flags.
type options struct {
	arches, bin, name, out, rootfs, work, version string
	check                                         bool
}

func run() error {
	var o options
	flag.StringVar(&o.arches, "arch", "amd64", "architectures, by comma: amd64, arm64")
	flag.StringVar(&o.bin, "bin", "", "static csi-mpath; ARCH in it stands for the architecture")
	flag.StringVar(&o.name, "name", "localhost/csi-mpath:e2e", "the image's name in the archive")
	flag.StringVar(&o.out, "out", "", "archive to write")
	flag.StringVar(&o.rootfs, "rootfs", "", "write the files of one architecture into this directory, instead of an archive")
	flag.StringVar(&o.work, "work", "", "directory for packages, kept between runs")
	flag.StringVar(&o.version, "version", "unknown", "for the image's labels")
	flag.BoolVar(&o.check, "check", false, "run the programs inside, as root; those of another architecture are not run")
	flag.Parse()
	if o.bin == "" || o.work == "" || (o.out == "") == (o.rootfs == "") {
		return fmt.Errorf("want --bin, --work, and one of --out and --rootfs")
	}
	return o.build()
}

func (o *options) build() error {
	var all []*platform
	for arch := range strings.SplitSeq(o.arches, ",") {
		p, err := o.platform(arch)
		if err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
		all = append(all, p)
	}
	if o.rootfs != "" {
		return all[0].unpack(o.rootfs)
	}
	if err := writeArchive(o.out, o.name, o.version, all); err != nil {
		return err
	}
	fmt.Printf("%s: %s for %s\n", o.out, o.name, o.arches)
	return nil
}

// platform are the files of one architecture's image.
type platform struct {
	arch         string
	debian, ours []file
}

func (o *options) platform(arch string) (*platform, error) {
	packages, err := download(filepath.Join(o.work, arch), arch)
	if err != nil {
		return nil, err
	}
	files, err := choose(packages, arch)
	if err != nil {
		return nil, err
	}
	bin, err := os.ReadFile(strings.ReplaceAll(o.bin, "ARCH", arch))
	if err != nil {
		return nil, err
	}
	if needs, interp, err := needed(bin); err != nil || len(needs) > 0 || interp != "" {
		return nil, fmt.Errorf("%s is no static program (%v, needs %v): build it with CGO_ENABLED=0", o.bin, err, needs)
	}
	p := &platform{arch: arch, debian: files, ours: []file{{path: "usr/bin/csi-mpath", mode: 0o755, data: bin}}}
	if o.check && arch == runtime.GOARCH {
		return p, p.tryPrograms()
	}
	return p, nil
}
