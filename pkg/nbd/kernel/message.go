package kernel

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mdlayher/netlink"
)

// The generic netlink family of the kernel's NBD client, and its group of
// events (include/uapi/linux/nbd-netlink.h).
const (
	familyName = "nbd"
	groupName  = "nbd_mc_group"
)

// command is what a message asks for or tells.
type command uint8

// The commands (NBD_CMD_*).
const (
	cmdConnect command = iota + 1
	cmdDisconnect
	cmdReconfigure
	cmdLinkDead
	cmdStatus
)

var commandNames = [...]string{"", "CONNECT", "DISCONNECT", "RECONFIGURE", "LINK_DEAD", "STATUS"}

func (c command) String() string {
	if int(c) < len(commandNames) && c > 0 {
		return commandNames[c]
	}
	return fmt.Sprintf("command %d", uint8(c))
}

// The attributes (NBD_ATTR_*). Those the kernel does not know it ignores.
const (
	attrIndex       = 1  // u32
	attrSize        = 2  // u64, bytes
	attrBlockSize   = 3  // u64, bytes
	attrTimeout     = 4  // u64, seconds; 0 = never for a single connection
	attrServerFlags = 5  // u64, transmission flags
	attrClientFlags = 6  // u64
	attrSockets     = 7  // nested items
	attrDeadConn    = 8  // u64, seconds
	attrDevices     = 9  // nested items
	attrBackend     = 10 // string, 5.14 and later

	// Of the nested attributes.
	attrSocketItem      = 1
	attrSocketFD        = 1 // u32
	attrDeviceItem      = 1
	attrDeviceIndex     = 1 // u32
	attrDeviceConnected = 2 // u8
)

// message is one message to or from the kernel. A nil pointer, an empty string
// or an empty slice is an attribute that is not there.
type message struct {
	cmd                                    command
	index                                  *uint32
	size, block, timeout                   *uint64
	serverFlags, clientFlags, deadConnects *uint64
	sockets                                []uint32
	devices                                []deviceItem
	backend                                string
}

// deviceItem is a device in the answer to STATUS. connected means in use, also
// when nobody serves it any more.
type deviceItem struct {
	index     uint32
	connected bool
}

// encode returns the attributes of m.
func (m *message) encode() ([]byte, error) {
	e := netlink.NewAttributeEncoder()
	if m.index != nil {
		e.Uint32(attrIndex, *m.index)
	}
	for _, a := range m.numbers() {
		if *a.value != nil {
			e.Uint64(a.typ, **a.value)
		}
	}
	if len(m.sockets) > 0 {
		e.Nested(attrSockets, m.encodeSockets)
	}
	if len(m.devices) > 0 {
		e.Nested(attrDevices, m.encodeDevices)
	}
	if m.backend != "" {
		e.String(attrBackend, m.backend)
	}
	return e.Encode()
}

type number struct {
	typ   uint16
	value **uint64
}

// numbers are the u64 attributes, for both directions.
func (m *message) numbers() [6]number {
	return [...]number{
		{attrSize, &m.size}, {attrBlockSize, &m.block}, {attrTimeout, &m.timeout},
		{attrServerFlags, &m.serverFlags}, {attrClientFlags, &m.clientFlags}, {attrDeadConn, &m.deadConnects},
	}
}

func (m *message) encodeSockets(e *netlink.AttributeEncoder) error {
	for _, fd := range m.sockets {
		e.Nested(attrSocketItem, func(e *netlink.AttributeEncoder) error {
			e.Uint32(attrSocketFD, fd)
			return nil
		})
	}
	return nil
}

func (m *message) encodeDevices(e *netlink.AttributeEncoder) error {
	for _, d := range m.devices {
		e.Nested(attrDeviceItem, func(e *netlink.AttributeEncoder) error {
			e.Uint32(attrDeviceIndex, d.index)
			connected := uint8(0)
			if d.connected {
				connected = 1
			}
			e.Uint8(attrDeviceConnected, connected)
			return nil
		})
	}
	return nil
}

// decode reads the attributes of a message. Unknown attributes are those of a
// newer kernel and are passed over; a known one of a wrong form is an error.
func decode(cmd command, b []byte) (message, error) {
	m := message{cmd: cmd}
	d, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return m, m.malformed(err)
	}
	for d.Next() {
		m.attribute(d)
	}
	if err := d.Err(); err != nil {
		return m, m.malformed(err)
	}
	if m.index != nil && *m.index > maxIndex {
		return m, m.malformed(fmt.Errorf("device index %d", *m.index))
	}
	return m, nil
}

func (m *message) malformed(err error) error {
	return fmt.Errorf("nbd: malformed %v message of the kernel: %w", m.cmd, err)
}

func (m *message) attribute(d *netlink.AttributeDecoder) {
	for _, a := range m.numbers() {
		if d.Type() == a.typ {
			*a.value = new(d.Uint64())
			return
		}
	}
	switch d.Type() {
	case attrIndex:
		m.index = new(d.Uint32())
	case attrSockets:
		d.Nested(m.decodeSockets)
	case attrDevices:
		d.Nested(m.decodeDevices)
	case attrBackend:
		d.Do(m.decodeBackend)
	}
}

func (m *message) decodeBackend(b []byte) error {
	s := strings.TrimSuffix(string(b), "\x00")
	if s == "" || len(s) > MaxBackend || strings.ContainsRune(s, 0) {
		return errors.New("backend identifier of a wrong form")
	}
	m.backend = s
	return nil
}

func (m *message) decodeSockets(d *netlink.AttributeDecoder) error {
	for d.Next() {
		if d.Type() != attrSocketItem || len(m.sockets) == MaxConnections {
			return errors.New("sockets of a wrong form or number")
		}
		fd, found := uint32(0), false
		d.Nested(func(d *netlink.AttributeDecoder) error {
			for d.Next() {
				if d.Type() == attrSocketFD {
					fd, found = d.Uint32(), true
				}
			}
			return nil
		})
		if d.Err() == nil && !found {
			return errors.New("a socket without its number")
		}
		m.sockets = append(m.sockets, fd)
	}
	return nil
}

func (m *message) decodeDevices(d *netlink.AttributeDecoder) error {
	for d.Next() {
		if d.Type() != attrDeviceItem || len(m.devices) == maxDevices {
			return errors.New("devices of a wrong form or number")
		}
		var item deviceItem
		seen := 0
		d.Nested(func(d *netlink.AttributeDecoder) error {
			for d.Next() {
				switch d.Type() {
				case attrDeviceIndex:
					item.index = d.Uint32()
					seen |= 1
				case attrDeviceConnected:
					item.connected = d.Uint8() != 0
					seen |= 2
				}
			}
			return nil
		})
		if d.Err() == nil && (seen != 3 || item.index > maxIndex) {
			return errors.New("a device without its index or state")
		}
		m.devices = append(m.devices, item)
	}
	return nil
}
