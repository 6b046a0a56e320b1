//go:build vm

package fabrics

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

// configfs is where the kernel's target is told what to serve.
const configfs = "/sys/kernel/config/nvmet"

// nvmet is a subsystem of the kernel's target. Its store is a file in memory
// behind a loop device, which has blocks of 512 bytes.
type nvmet struct {
	name, dir string // NQN, and its folder
	id        string // of the namespace
	file      string
	loop      string
}

func newNvmet(t *testing.T) array {
	t.Helper()
	subsystems++
	s := &nvmet{name: fmt.Sprint("nqn.2026-01.io.csi-mpath:nvmet", subsystems),
		id: namespaceUUID(subsystems), file: fmt.Sprintf("/run/nvmet%d.img", subsystems)}
	s.dir = filepath.Join(configfs, "subsystems", s.name)
	t.Cleanup(func() {
		if err := s.undo(); err != nil {
			t.Error(err)
		}
	})
	rig.Must(t, errors.Join(os.WriteFile(s.file, nil, 0o600), os.Truncate(s.file, 64*mib)))
	s.loop = strings.TrimSpace(rig.Sh(t, "losetup -f --show "+s.file))
	ns := filepath.Join(s.dir, "namespaces", "1")
	rig.Must(t, set(s.dir, "attr_allow_any_host", "1", "attr_serial", fmt.Sprintf("NVMET%04d", subsystems)))
	rig.Must(t, set(ns, "device_path", s.loop, "device_uuid", s.id, "ana_grpid", "1", "enable", "1"))
	for i, p := range portals {
		addr, port, _ := strings.Cut(p, ":")
		rig.Must(t, set(s.port(i), "addr_trtype", "tcp", "addr_adrfam", "ipv4", "addr_traddr", addr, "addr_trsvcid", port))
		rig.Must(t, s.restore(i))
	}
	return s
}

// set makes a folder of configfs, unless it is there, and writes its files.
func set(dir string, kv ...string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i := 0; i < len(kv); i += 2 {
		if err := os.WriteFile(filepath.Join(dir, kv[i]), []byte(kv[i+1]), 0); err != nil {
			return fmt.Errorf("%s = %q: %w", kv[i], kv[i+1], err)
		}
	}
	return nil
}

// undo removes everything, in the only order that the kernel takes.
func (s *nvmet) undo() error {
	var errs []error
	gone := func(err error) {
		if !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	for i := range portals {
		gone(s.remove(i))
		gone(os.Remove(s.port(i)))
	}
	gone(os.Remove(filepath.Join(s.dir, "namespaces", "1")))
	gone(os.Remove(filepath.Join(s.dir, "allowed_hosts", hostNQN)))
	gone(os.Remove(s.dir))
	gone(os.Remove(filepath.Join(configfs, "hosts", hostNQN)))
	if s.loop != "" {
		_, err := rig.Try("losetup -d " + s.loop)
		errs = append(errs, err)
	}
	gone(os.Remove(s.file))
	return errors.Join(errs...)
}

func (s *nvmet) nqn() string  { return s.name }
func (s *nvmet) uuid() string { return s.id }

func (s *nvmet) port(i int) string { return filepath.Join(configfs, "ports", strconv.Itoa(i+1)) }

func (s *nvmet) ana(port int, state string) error {
	kmsg.Say("port %d becomes %s", port, state)
	return set(filepath.Join(s.port(port), "ana_groups", "1"), "ana_state", state)
}

func (s *nvmet) remove(port int) error {
	kmsg.Say("port %d is removed", port)
	return os.Remove(filepath.Join(s.port(port), "subsystems", s.name))
}

func (s *nvmet) restore(port int) error {
	kmsg.Say("port %d returns", port)
	return os.Symlink(s.dir, filepath.Join(s.port(port), "subsystems", s.name))
}

func (s *nvmet) grow(size int64) error {
	if err := os.Truncate(s.file, size); err != nil {
		return err
	}
	if _, err := rig.Try("losetup -c " + s.loop); err != nil {
		return err
	}
	return set(filepath.Join(s.dir, "namespaces", "1"), "revalidate_size", "1")
}

func (s *nvmet) demand(secret, ctrlSecret string) error {
	dir := filepath.Join(configfs, "hosts", hostNQN)
	err := set(dir, "dhchap_key", secret, "dhchap_dhgroup", "ffdhe2048", "dhchap_hash", "hmac(sha256)")
	if ctrlSecret != "" {
		err = errors.Join(err, set(dir, "dhchap_ctrl_key", ctrlSecret))
	}
	return errors.Join(err, set(s.dir, "attr_allow_any_host", "0"), os.Symlink(dir, filepath.Join(s.dir, "allowed_hosts", hostNQN)))
}
