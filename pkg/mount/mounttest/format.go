package mounttest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"

	"github.com/csi-mpath/csi-mpath/pkg/program"
)

// identity is what a superblock says.
type identity struct {
	fsType     string
	uuid       [16]byte
	unfinished bool
}

func identify(d Disk) (id identity, err error) {
	b := make([]byte, 4096)
	if _, err := d.ReadAt(b, 0); err != nil {
		return id, err
	}
	switch {
	case string(b[:4]) == "XFSB":
		return identity{"xfs", [16]byte(b[32:48]), b[126] != 0}, nil
	case binary.LittleEndian.Uint16(b[1024+0x38:]) == 0xEF53:
		return identity{"ext4", [16]byte(b[1024+0x68:]), false}, nil
	}
	return id, errors.New("no superblock")
}

func uuid() (u [16]byte) {
	for i := range u {
		u[i] = byte(rand.Uint32())
	}
	return u
}

// Ext4 is an ext4 superblock, 1 KiB, at byte 1024 of its device.
func Ext4(size uint64) []byte {
	b, le, id := make([]byte, 1024), binary.LittleEndian, uuid()
	le.PutUint32(b[4:], uint32(size/4096))
	le.PutUint32(b[0x150:], uint32(size/4096>>32))
	le.PutUint32(b[0x18:], 2)
	le.PutUint16(b[0x38:], 0xEF53)
	le.PutUint16(b[0x3A:], 1)
	le.PutUint32(b[0x60:], 0x80)
	copy(b[0x68:], id[:])
	return b
}

// XFS is an XFS superblock, 512 bytes, at byte 0 of its device.
func XFS(size uint64, unfinished bool) []byte {
	b, be, id := make([]byte, 512), binary.BigEndian, uuid()
	copy(b, "XFSB")
	be.PutUint32(b[4:], 4096)
	be.PutUint64(b[8:], size/4096)
	copy(b[32:], id[:])
	if unfinished {
		b[126] = 1
	}
	return b
}

// writer makes a program's writes, with a step between them.
type writer struct {
	n   *Node
	d   Disk
	err error
}

func (w *writer) put(step string, off int64, b []byte) {
	if w.err != nil {
		return
	}
	_, w.err = w.d.WriteAt(b, off)
	if w.n.Step != nil {
		w.n.Step(step)
	}
}

func (w *writer) end(name string) error {
	if w.err != nil {
		return &exit{1, name + ": " + w.err.Error()}
	}
	return nil
}

// noise is what no program takes for nothing.
func noise(n int) []byte {
	id := uuid()
	return bytes.Repeat(append(id[:], 1), n/len(id)+1)[:n]
}

// mkfsExt4 writes in the order of mke2fs over a large device: the boot block only
// where no BSD label is, everything else in the first 2 MiB, the superblock last.
func mkfsExt4(n *Node, c *program.Call) ([]byte, error) {
	d, err := n.device(c.Args[len(c.Args)-1])
	if err != nil {
		return nil, err
	}
	boot := make([]byte, 512)
	if _, err := d.disk.ReadAt(boot, 0); err != nil {
		return nil, &exit{1, err.Error()}
	}
	w := &writer{n: n, d: d.disk}
	w.put("old superblock", 1024, make([]byte, 3072))
	if binary.LittleEndian.Uint32(boot[64:]) != 0x82564557 {
		w.put("boot block", 0, make([]byte, 1024))
	}
	w.put("tables", 4096, noise(1<<20))
	w.put("more tables", 4096+1<<20, noise(1<<20-4096))
	w.put("superblock", 1024, Ext4(d.disk.Size()))
	return nil, w.end(c.Name)
}

// mkfsXFS writes in the order of mkfs.xfs: 128 KiB of zeroes, headers with a
// superblock that says "in progress", and the final superblock.
func mkfsXFS(n *Node, c *program.Call) ([]byte, error) {
	d, err := n.device(c.Args[len(c.Args)-1])
	if err != nil {
		return nil, err
	}
	w := &writer{n: n, d: d.disk}
	w.put("wipe", 0, make([]byte, 128<<10))
	w.put("headers", 512, noise(32<<10))
	super := XFS(d.disk.Size(), true)
	w.put("superblock in progress", 0, super)
	w.put("inodes", 64<<10, noise(32<<10))
	super[126] = 0
	w.put("superblock", 0, super)
	return nil, w.end(c.Name)
}

// grow makes a file system as large as its disk.
func grow(d Disk) error {
	id, err := identify(d)
	if err != nil {
		return &exit{1, "Bad magic number in super-block"}
	}
	if id.fsType == "xfs" {
		_, err = d.WriteAt(binary.BigEndian.AppendUint64(nil, d.Size()/4096), 8)
		return err
	}
	b := Ext4(d.Size())
	copy(b[0x68:], id.uuid[:])
	_, err = d.WriteAt(b, 1024)
	return err
}

func growXFS(n *Node, c *program.Call) ([]byte, error) {
	target := c.Args[len(c.Args)-1]
	n.mu.Lock()
	var d *device
	for _, e := range n.table {
		if e.path == target {
			d = n.find(e.number)
		}
	}
	n.mu.Unlock()
	if d == nil {
		return nil, &exit{1, target + ": not a mounted XFS filesystem"}
	}
	b := make([]byte, 16)
	if _, err := d.disk.ReadAt(b, 0); err != nil {
		return nil, err
	}
	if bytes.Equal(b[8:], binary.BigEndian.AppendUint64(nil, d.disk.Size()/4096)) {
		return []byte("data size unchanged, skipping\n"), nil
	}
	return []byte("data blocks changed\n"), grow(d.disk)
}
