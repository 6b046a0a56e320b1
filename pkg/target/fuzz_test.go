package target

import (
	"bytes"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// survives checks what must hold whatever the peer sent.
func survives(t *testing.T, r *rig, c *client) {
	t.Helper()
	c.drain()
	if len(c.raw) > 64<<20 {
		t.Fatalf("%d bytes of answers", len(c.raw))
	}
	c.c.Gone()
	if r.Buffers.Held() != 0 || r.Late() != 0 || r.Conns() != 0 {
		t.Fatalf("%d bytes of buffers, %d late tasks, %d connections are left", r.Buffers.Held(), r.Late(), r.Conns())
	}
	ok := r.session(2, 77) // the target still works
	ok.good(ok.readCmd(0, 1))
}

func FuzzLogin(f *testing.F) {
	p := pdu.LoginRequest{Transit: true, CSG: 1, NSG: 3}
	h := make([]byte, 48)
	p.Put(h)
	f.Add(h, append(pdu.Keys{{Key: "InitiatorName", Value: "i"}, {Key: "TargetName", Value: DefaultName}}, loginKeys...).Append(nil), true)
	f.Add(h, pdu.Keys{{Key: "InitiatorName", Value: "i"}, {Key: "AuthMethod", Value: "CHAP"}}.Append(nil), false)
	f.Fuzz(func(t *testing.T, header, text []byte, open bool) {
		r := newRig(t, func(c *Config) {
			if !open {
				c.Auth = chap
			}
		})
		c := r.dial(1)
		if len(header) >= 48 && len(text) < 1<<16 {
			header = bytes.Clone(header[:48])
			header[5], header[6], header[7] = 0, byte(len(text)>>8), byte(len(text))
			c.write(append(append(header, text...), make([]byte, pdu.Pad(len(text)))...))
			c.write(header)
		}
		c.drain()
		c.c.Gone()
		if r.Conns() != 0 || r.Buffers.Held() != 0 {
			t.Fatalf("%d connections, %d bytes", r.Conns(), r.Buffers.Held())
		}
	})
}

func FuzzFullFeaturePhase(f *testing.F) {
	seed := newRig(&testing.T{}, nil).session(1, 1)
	seed.sent = nil
	// Short, because the fuzzer shrinks what it finds byte by byte.
	seed.readCmd(0, 2)
	seed.writeCmd(3, block(1, 1))
	itt := seed.command(pdu.SCSICommand{Write: true, EDTL: 5120}, func(b []byte) int { return scsi.PutWrite16(b, 64, 10, 0) }, nil)
	seed.dataOut(itt, pdu.NoTag, 0, 0, true, block(2, 1))
	seed.dataOut(itt, 1, 0, 512, true, block(2, 9)) // received in place when cut
	tmf := pdu.TMFRequest{Immediate: true, Function: pdu.TMFLUNReset, ITT: 9}
	seed.write(seed.pdu(tmf.Put, nil))
	f.Add(seed.sent, uint16(48), false)
	f.Add(seed.sent, uint16(0), true)
	f.Fuzz(func(t *testing.T, wire []byte, cut uint16, hold bool) {
		r := newRig(t, nil)
		c := r.session(1, 1)
		c.split = int(cut)
		var h *Held
		if hold {
			h, _ = r.Hold(Match{Kind: Writes}, true, nil)
		}
		c.write(wire)
		if hold {
			c.c.Gone()
			h.Release()
		}
		survives(t, r, c)
	})
}
