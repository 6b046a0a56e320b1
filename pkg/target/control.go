package target

import (
	"errors"
	"fmt"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

var errPortal = errors.New("target: no such portal")

// SetDevice makes LUN lun say other things of itself at one portal (0: at
// all), without telling anybody, as when a LUN number is reused. Empty fields
// have their defaults, as in Config.
func (m *Machine) SetDevice(portal int, lun uint32, d Device) error {
	u := m.units[lun]
	if u == nil {
		return fmt.Errorf("target: no LUN %d", lun)
	}
	if err := d.fill(m.cfg.Name, lun, u.Store); err != nil {
		return err
	}
	if portal == 0 {
		u.Device = d
		for _, p := range m.portals {
			delete(p.devices, lun)
		}
		return nil
	}
	p := m.portal(portal)
	if p == nil {
		return errPortal
	}
	p.devices[lun] = d
	return nil
}

// DeviceAt is what LUN lun says of itself at a portal.
func (m *Machine) DeviceAt(portal int, lun uint32) (Device, error) {
	p, u := m.portal(portal), m.units[lun]
	if p == nil || u == nil {
		return Device{}, errPortal
	}
	return *p.device(u), nil
}

// SetALUA changes the state of a target port group and tells every session (2Ah/06).
func (m *Machine) SetALUA(group uint16, state scsi.AccessState) {
	m.groups[group] = state
	for _, n := range m.numbers {
		m.attention(n, scsi.Sense{Key: scsi.KeyUnitAttention, ASC: 0x2A, ASCQ: 0x06}, nil)
	}
}

// SetTransitionTime is what RTPG's extended header says.
func (m *Machine) SetTransitionTime(d time.Duration) { m.implicit = d }

// Attention queues a unit attention for LUN lun on every session, or those of
// one portal.
func (m *Machine) Attention(portal int, lun uint32, s scsi.Sense) {
	for _, sess := range m.sessions {
		if portal != 0 && sess.portal.index != portal || sess.discovery || len(sess.attentions[lun]) >= maxAttentions {
			continue
		}
		sess.attentions[lun] = append(sess.attentions[lun], s)
	}
}

// Redirect makes a portal send logins elsewhere; "" ends it.
func (m *Machine) Redirect(portal int, address string, permanent bool) error {
	p := m.portal(portal)
	if p == nil {
		return errPortal
	}
	p.redirect, p.moved = address, permanent
	return nil
}

// RefuseLogins makes a portal answer logins with a status; class 0 ends it.
func (m *Machine) RefuseLogins(portal int, class, detail byte) error {
	p := m.portal(portal)
	if p == nil {
		return errPortal
	}
	p.refuse, p.refusing = [2]byte{class, detail}, class != 0
	return nil
}

// Ping sends a NOP-In that wants an answer on every session of a portal.
func (m *Machine) Ping(portal int) {
	m.each(portal, func(c *conn) {
		c.textTTT = (c.textTTT + 1) & 0x7fffffff
		p := pdu.NOPIn{ITT: pdu.NoTag, TTT: c.textTTT, Window: c.window(false)}
		p.Put(c.head())
		c.seal()
	})
}

// Pongs counts the answers to Ping of the sessions of a portal.
func (m *Machine) Pongs(portal int) (n int) {
	if p := m.portal(portal); p != nil {
		for c := range p.conns {
			n += c.pongs
		}
	}
	return n
}

// Async sends an asynchronous message on every session of a portal (RFC 7143
// 11.9): for pdu.AsyncLogout seconds is how long the initiator may take.
func (m *Machine) Async(portal int, event uint8, seconds uint16) {
	m.each(portal, func(c *conn) {
		p := pdu.Async{Event: event, Param3: seconds, Window: c.window(true)}
		p.Put(c.head())
		c.seal()
	})
}

func (m *Machine) each(portal int, f func(c *conn)) {
	for _, s := range m.sessions {
		if c := s.conn; c != nil && !s.discovery && (portal == 0 || s.portal.index == portal) {
			f(c)
			c.Touch()
		}
	}
}

// Sessions counts the sessions of a portal (0: all) that have a connection.
func (m *Machine) Sessions(portal int) (n int) {
	for _, s := range m.sessions {
		if s.conn != nil && (portal == 0 || s.portal.index == portal) {
			n++
		}
	}
	return n
}
