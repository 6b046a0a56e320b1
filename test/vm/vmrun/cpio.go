package main

import (
	"fmt"
	"io"
)

// archive writes the initrd: a cpio archive in the "newc" format
// (Documentation/driver-api/early-userspace/buffer-format.rst in Linux).
type archive struct {
	w   io.Writer
	n   int64
	ino int
	err error
}

const (
	modeDir  = 0o040755
	modeFile = 0o100755
)

func (a *archive) dir(name string)               { a.entry(name, modeDir, nil) }
func (a *archive) file(name string, body []byte) { a.entry(name, modeFile, body) }

// end writes the trailer and returns the first error of all.
func (a *archive) end() error {
	a.entry("TRAILER!!!", 0, nil)
	return a.err
}

func (a *archive) entry(name string, mode int, body []byte) {
	a.ino++
	links := 1
	if mode == modeDir {
		links = 2
	}
	// ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
	a.put([]byte("070701"))
	for _, v := range []int{a.ino, mode, 0, 0, links, 0, len(body), 0, 0, 0, 0, len(name) + 1, 0} {
		a.put(fmt.Appendf(nil, "%08X", v))
	}
	a.put(append([]byte(name), 0))
	a.pad()
	a.put(body)
	a.pad()
}

func (a *archive) put(b []byte) {
	if a.err != nil {
		return
	}
	n, err := a.w.Write(b)
	a.n += int64(n)
	a.err = err
}

func (a *archive) pad() {
	if odd := a.n % 4; odd != 0 {
		a.put(make([]byte, 4-odd))
	}
}
