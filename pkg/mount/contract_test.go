package mount_test

import (
	"fmt"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/mount"
	"github.com/csi-mpath/csi-mpath/pkg/mount/mounttest"
)

// memoryNode is the twin as a subject of the contract.
type memoryNode struct {
	n    *mounttest.Node
	made int
}

func (s *memoryNode) Host() *mount.Host { return mount.Over(s.n) }

func (s *memoryNode) Device(size uint64) mounttest.Device { return s.add(mounttest.NewMemory(size)) }

func (s *memoryNode) add(m *mounttest.Memory) *memoryDevice {
	s.made++
	d := &memoryDevice{m, s, fmt.Sprint("/dev/fake", s.made)}
	s.n.Add(d.path, fmt.Sprint("43:", s.made), m)
	return d
}

type memoryDevice struct {
	*mounttest.Memory
	on   *memoryNode
	path string
}

func (d *memoryDevice) Path() string            { return d.path }
func (d *memoryDevice) Clone() mounttest.Device { return d.on.add(d.Memory.Clone()) }

func TestTheNodeInMemoryKeepsTheContract(t *testing.T) {
	mounttest.Contract(t, func(*testing.T) mounttest.Subject { return &memoryNode{n: mounttest.New()} })
}
