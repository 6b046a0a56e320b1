//go:build vm

package storage

import (
	"path/filepath"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store/directory"
	"github.com/csi-mpath/csi-mpath/pkg/backend/contract"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
)

func TestTheContractOverAThinPoolAndTheKernelsTargets(t *testing.T) {
	kmsg.Watch(t, memoryDisk)
	g := newGroup(t, 256)
	contract.Run(t, func(t *testing.T) contract.Subject { return start(t, g.over(false, kernels)).subject() })
}

// onFiles is a server over a directory of a file system with reflinks.
func onFiles(t *testing.T, at string) server {
	dir := filepath.Join(at, filepath.Base(t.Name()))
	return server{leftovers: func() []string { return files(t, dir) }, openAll: kernels,
		openStore: func() (store.Store, error) { return directory.Open(directory.Config{Path: dir}) }}
}

func TestTheContractOverFilesAndTheKernelsTargets(t *testing.T) {
	kmsg.Watch(t, memoryDisk)
	at := mounted(t, "xfs", 512)
	contract.Run(t, func(t *testing.T) contract.Subject { return start(t, onFiles(t, at)).subject() })
}

func TestTheContractOverFilesAndTheEmbeddedTarget(t *testing.T) {
	kmsg.Watch(t, memoryDisk)
	at := mounted(t, "xfs", 512)
	contract.Run(t, func(t *testing.T) contract.Subject {
		s := onFiles(t, at)
		s.openAll = ours
		return start(t, s).subject()
	})
}
