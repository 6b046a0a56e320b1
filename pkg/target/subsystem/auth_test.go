package subsystem

import (
	"errors"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
)

func secretOf(n byte) auth.Secret { return auth.FormatSecret(0, pattern(n, 32)) }

// prove runs the host's side on a queue.
func (c *client) prove(h *auth.Host) error {
	c.t.Helper()
	var in []byte
	for {
		out, done, err := h.Next(in)
		if out != nil {
			cmd := nvme.SendAuth(uint32(len(out)))
			c.good(c.start(cmd, out))
		}
		if done || err != nil {
			return err
		}
		in = c.get(nvme.ReceiveAuth(auth.MaxMessage), auth.MaxMessage)
	}
}

func TestHostsProveThemselvesOnEachQueue(t *testing.T) {
	known := auth.Credentials{Secret: secretOf(1), ControllerSecret: secretOf(2), Groups: auth.GroupSet(auth.FFDHE2048)}
	for name, c := range map[string]struct {
		host auth.Credentials
		want error
	}{
		"both ways":         {known, nil},
		"one way":           {auth.Credentials{Secret: secretOf(1)}, nil},
		"another secret":    {auth.Credentials{Secret: secretOf(3)}, auth.ErrRefused},
		"another target":    {auth.Credentials{Secret: secretOf(1), ControllerSecret: secretOf(3)}, auth.ErrWrongResponse},
		"a group not known": {auth.Credentials{Secret: secretOf(1), Groups: auth.GroupSet(auth.Null)}, auth.ErrRefused},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.HostAuth = map[string]auth.Credentials{hostNQN: known} })
			admin := r.dial(1, plain)
			v := admin.tries(nvme.ConnectCommand{}, connectData(1))
			if !v.Status.OK() || !nvme.ParseConnectResult(v.Result).AuthRequired {
				t.Fatalf("%v, %+v", v.Status, nvme.ParseConnectResult(v.Result))
			}
			admin.bad(admin.start(nvme.GetProperty(nvme.RegCAP), nil), nvme.AuthRequired.Final())
			var src auth.Source
			h, err := auth.NewHost(c.host, hostNQN, DefaultName, &src)
			if err != nil {
				t.Fatal(err)
			}
			if err := admin.prove(h); !errors.Is(err, c.want) {
				t.Fatalf("%v, want %v", err, c.want)
			}
			if c.want != nil {
				if !admin.c.Closing() || r.Stats().AuthFailures != 1 {
					t.Error("the connection stays")
				}
				return
			}
			x := &host{r: r, admin: admin, id: nvme.ParseConnectResult(v.Result).ControllerID, data: connectData(1)}
			x.enable()
			x.io = x.queue(1, 1, plain, 0)
			x.io.bad(x.io.write1(0, pattern(1, 512)), nvme.AuthRequired.Final())
			if h, err = auth.NewHost(c.host, hostNQN, DefaultName, &src); err != nil {
				t.Fatal(err)
			}
			if err := x.io.prove(h); err != nil {
				t.Fatal(err)
			}
			x.io.good(x.io.write1(0, pattern(1, 512)))
		})
	}
}
