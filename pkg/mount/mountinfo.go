package mount

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// parseMountInfo reads /proc/self/mountinfo (proc_pid_mountinfo(5)): in order of
// mounting, so that of several at one path the last is on top.
//
// The source may be empty, and then there are two spaces: fields are told apart
// by single ones.
func parseMountInfo(b []byte) (points []Point, err error) {
	for line := range bytes.Lines(b) {
		f := strings.Split(strings.TrimSuffix(string(line), "\n"), " ")
		sep := 6
		for sep < len(f) && f[sep] != "-" {
			sep++
		}
		if len(f) < sep+4 {
			return nil, fmt.Errorf("mountinfo: a line of %d fields: %.200q", len(f), line)
		}
		points = append(points, Point{
			Device: f[2], Root: unescape(f[3]), Path: unescape(f[4]), FSType: f[sep+1], Source: unescape(f[sep+2]),
			ReadOnly: hasOption(f[5], "ro") || hasOption(f[sep+3], "ro"),
		})
	}
	return points, nil
}

func hasOption(list, option string) bool {
	for o := range strings.SplitSeq(list, ",") {
		if o == option {
			return true
		}
	}
	return false
}

// unescape undoes the kernel's mangle(): three octal digits after a backslash.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if v, ok := octal(s[i:]); ok {
			out.WriteByte(v)
			i += 3
			continue
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

func octal(s string) (v byte, ok bool) {
	if len(s) < 4 || s[0] != '\\' || s[1] > '3' {
		return 0, false
	}
	for _, c := range []byte(s[1:4]) {
		if c < '0' || c > '7' {
			return 0, false
		}
		v = v<<3 + (c - '0')
	}
	return v, true
}

// points are the mounts of this process's mount namespace.
func (h *Host) points() ([]Point, error) {
	b, err := h.node.MountInfo()
	if err != nil {
		return nil, err
	}
	return parseMountInfo(b)
}

// Find is the topmost mount at a path, nil if it is none. It touches neither the
// path nor a device.
func (h *Host) Find(target string) (*Point, error) {
	points, err := h.points()
	if err != nil {
		return nil, err
	}
	for i := len(points) - 1; i >= 0; i-- {
		if points[i].Path == target {
			return &points[i], nil
		}
	}
	return nil, nil
}

// Mounts are all mounts of a device's file system.
func (h *Host) Mounts(path string) ([]Point, error) {
	d, err := h.node.Device(path)
	if err != nil {
		return nil, err
	}
	return h.mountsOf(d)
}

func (h *Host) mountsOf(d Device) (out []Point, err error) {
	points, err := h.points()
	for _, p := range points {
		if p.Device == d.Number {
			out = append(out, p)
		}
	}
	return out, err
}

// gone reports whether the block device of a mount is no more, or has lost its
// medium, as a detached one has: its file system answers nothing ever again.
func (h *Host) gone(p *Point) bool {
	if strings.HasPrefix(p.Device, "0:") {
		return false // no block device
	}
	d, err := h.node.Numbered(p.Device)
	return errors.Is(err, fs.ErrNotExist) || err == nil && d.Size == 0
}

// DeviceSize is a block device's size in bytes, as the kernel knows it now.
func (h *Host) DeviceSize(path string) (uint64, error) {
	d, err := h.node.Device(path)
	return d.Size, err
}
