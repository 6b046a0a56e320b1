package device

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/durable"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/kernel"
)

// instanceBytes are drawn for a state directory when it is first used.
const instanceBytes = 8

// backendPrefix begins the identifier of every kernel device of ours.
const backendPrefix = "csi-mpath:"

// identifier is what the kernel knows a volume's device by: only who names the right
// one is given a device back (I1 towards the kernel). It says whose it is, because one
// kernel may have several nodes (kind, k3d) that have the same volume one after the
// other, with different epochs: the one must not find what the other left.
func identifier(stateDir, volume string) (string, error) {
	unlock, err := durable.Lock(filepath.Join(stateDir, "isids.lock"), false)
	if err != nil {
		return "", err
	}
	defer unlock()
	who, err := instance(stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		who = make([]byte, instanceBytes)
		_, _ = rand.Read(who) // never fails
		err = durable.Write(instanceFile(stateDir), []byte(hex.EncodeToString(who)))
	}
	if err != nil {
		return "", err
	}
	return compose(who, volume), nil
}

// identified is the identifier that a device of this volume has if there is one.
func identified(stateDir, volume string) (string, error) {
	who, err := instance(stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", kernel.ErrNotAttached
	}
	return compose(who, volume), err
}

func instanceFile(stateDir string) string { return filepath.Join(stateDir, "instance") }

func compose(who []byte, volume string) string {
	return backendPrefix + hex.EncodeToString(who) + ":" + durable.FileName(volume)
}

func instance(stateDir string) ([]byte, error) {
	text, err := durable.Read(instanceFile(stateDir), 2*instanceBytes)
	if err != nil {
		return nil, err
	}
	who, err := hex.DecodeString(string(text))
	if err != nil || len(who) != instanceBytes {
		return nil, fmt.Errorf("%s is damaged: remove it once no volume is attached", instanceFile(stateDir))
	}
	return who, nil
}

// findOwn finds the device that this state directory's process left.
func findOwn(k *kernel.Kernel, stateDir, volume string) (kernel.Status, error) {
	id, err := identified(stateDir, volume)
	if err != nil {
		return kernel.Status{}, err
	}
	return k.Find(id)
}

// onlyOne is the device of a volume, whichever state directory it belongs to.
func onlyOne(all []kernel.Status, volume string) (found kernel.Status, err error) {
	n := 0
	for _, s := range all {
		who, name, ok := strings.Cut(strings.TrimPrefix(s.Backend, backendPrefix), ":")
		if ok && strings.HasPrefix(s.Backend, backendPrefix) && len(who) == 2*instanceBytes && name == durable.FileName(volume) {
			found = s
			n++
		}
	}
	switch n {
	case 0:
		return found, kernel.ErrNotAttached
	case 1:
		return found, nil
	}
	return kernel.Status{}, fmt.Errorf("%d devices have this volume: name the state directory of the one that is meant", n)
}
