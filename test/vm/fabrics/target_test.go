//go:build vm

package fabrics

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

// estate is a subsystem of our target.
type estate struct {
	*rig.Estate
	name, id, dir string
	states        [2]string
}

const configuration = `targets:
- nqn: NQN
  portals: [{address: "127.0.0.1:4420", group: 1}, {address: "127.0.0.2:4420", group: 2}]
  groups: []
  namespaces:
  - {nsid: 1, store: {ram: 64Mi}, uuid: UUID}
`

func newEstate(t *testing.T) array {
	t.Helper()
	subsystems++
	e := &estate{name: fmt.Sprint("nqn.2026-01.io.csi-mpath:vm", subsystems), id: namespaceUUID(subsystems),
		dir: t.TempDir(), states: [2]string{"optimized", "optimized"}}
	e.Estate = rig.ServeEstate(t, strings.NewReplacer("NQN", e.name, "UUID", e.id).Replace(configuration))
	return e
}

func (e *estate) nqn() string  { return e.name }
func (e *estate) uuid() string { return e.id }

func (e *estate) ana(port int, state string) error {
	e.states[port] = state
	return e.Change(e.Between("groups:", "\n"), fmt.Sprintf("groups: [{id: 1, state: %s}, {id: 2, state: %s}]", e.states[0], e.states[1]))
}

func (e *estate) remove(port int) error {
	kmsg.Say("port %d is removed", port)
	e.Door(portals[port]).Kill()
	return nil
}

func (e *estate) restore(port int) error {
	kmsg.Say("port %d returns", port)
	return e.Door(portals[port]).Start()
}

func (e *estate) grow(size int64) error {
	return e.Change(e.Between("ram:", "}"), fmt.Sprint("ram: ", size))
}

func (e *estate) demand(secret, ctrlSecret string) error {
	host, ctrl, err := secretFiles(e.dir, secret, ctrlSecret)
	if err != nil {
		return err
	}
	auth := "auth: {secretFile: " + host
	if ctrl != "" {
		auth += ", controllerSecretFile: " + ctrl
	}
	return e.Change("  groups:", "  "+auth+"}\n  groups:")
}

// secretFiles writes secrets into files, "" for one that is not there.
func secretFiles(dir, secret, ctrlSecret string) (host, ctrl string, err error) {
	if secret != "" {
		host = filepath.Join(dir, "host.dhchap")
		err = os.WriteFile(host, []byte(secret+"\n"), 0o600)
	}
	if ctrlSecret != "" {
		ctrl = filepath.Join(dir, "ctrl.dhchap")
		err = errors.Join(err, os.WriteFile(ctrl, []byte(ctrlSecret+"\n"), 0o600))
	}
	return host, ctrl, err
}
