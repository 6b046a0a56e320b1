package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/driver"
	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
	"github.com/csi-mpath/csi-mpath/test/child"
)

// controllerProcess is a controller that is killed, and started again.
type controllerProcess struct {
	*mortal
	p *child.Child
}

// run starts it, to be killed at a fault point if that is not empty.
func (c *controllerProcess) run(point string) {
	c.t.Helper()
	var err error
	c.p, err = child.Start(child.Options{Env: []string{asCommand + "=1", faultpoint.Env + "=" + point}}, self,
		"controller", "--config", c.dir+"/controller.yaml", "--endpoint", c.endpoint())
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *controllerProcess) startAgain() bool {
	if c.p.Alive() {
		return false
	}
	c.run("")
	return true
}

// TestACSICallIsFinishedWhereverTheControllerIsKilled tells a volume's life once for
// each call: the controller is killed with SIGKILL when the storage host has done what
// was asked and the caller has no answer yet. It keeps nothing, so that is its one step.
func TestACSICallIsFinishedWhereverTheControllerIsKilled(t *testing.T) {
	c := &controllerProcess{mortal: withHost(t)}
	c.again = c.startAgain
	c.start("")
	a := c.h.Tenant()
	text := fmt.Sprintf("cluster: c\nbackends:\n- name: east\n  agent: {address: %q, ca: %s, certificate: %s, key: %s}\n", a.Address, a.TLS.CA, a.TLS.Cert, a.TLS.Key)
	if err := os.WriteFile(c.dir+"/controller.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	calls := []string{"CreateVolume", "ControllerPublishVolume", "ControllerExpandVolume", "ControllerModifyVolume", "ListVolumes", "ControllerUnpublishVolume", "DeleteVolume"}
	for _, call := range calls {
		c.kills = 0
		c.run(driver.Point(call))
		c.life()
		if c.kills != 1 {
			t.Errorf("%s: the controller was killed %d times: %s", call, c.kills, c.p.Output())
		}
		if left, err := c.h.Left(); err != nil || len(left) > 0 {
			t.Errorf("%s: left behind: %v, %v", call, left, err)
		}
		c.p.Kill()
	}
}
