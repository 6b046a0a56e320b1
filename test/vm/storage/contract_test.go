//go:build vm

package storage

import (
	"path/filepath"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store/directory"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/backend/contract"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

func TestTheContractOverAThinPoolAndTheKernelsTargets(t *testing.T) {
	kmsg.Watch(t, memoryDisk, kmsg.KeptOut)
	g := newGroup(t, 256)
	contract.Run(t, one(func(*testing.T) server { return g.over(false, kernels) }))
}

// onFiles is a server over a directory of a file system with reflinks.
func onFiles(t *testing.T, at string) server {
	dir := filepath.Join(at, filepath.Base(t.Name()))
	return server{cut: true, unenforced: []backend.Transport{backend.NVMe}, leftovers: func() []string { return files(t, dir) }, openAll: kernels,
		openStore: func() (store.Store, error) { return directory.Open(directory.Config{Path: dir}) }}
}

func TestTheContractOverFilesAndTheKernelsTargets(t *testing.T) {
	kmsg.Watch(t, memoryDisk, kmsg.KeptOut)
	at := rig.Mounted(t, "xfs", 512)
	contract.Run(t, one(func(t *testing.T) server { return onFiles(t, at) }))
}

func TestTheContractOverFilesAndTheEmbeddedTarget(t *testing.T) {
	kmsg.Watch(t, memoryDisk)
	at := rig.Mounted(t, "xfs", 512)
	contract.Run(t, one(func(t *testing.T) server {
		s := onFiles(t, at)
		s.openAll, s.unenforced = ours, nil
		return s
	}))
}
