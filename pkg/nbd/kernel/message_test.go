package kernel

import (
	"encoding/binary"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"

	"github.com/mdlayher/genetlink"
)

// The bytes as the kernel's policy wants them, on a little-endian machine
// (include/uapi/linux/nbd-netlink.h, netlink(7)).
func TestMessagesAreAsTheKernelWantsThem(t *testing.T) {
	o := Options{Backend: "vol-1", Index: 3, Size: 1 << 20, BlockSize: 512, Flags: 0x2d, Connections: 1}
	must(t, o.fill())
	connect := o.connect()
	connect.sockets = []uint32{7, 8}
	for name, c := range map[string]struct {
		m    message
		want string
	}{
		"connect": {connect, `
			0800 0100 03000000
			0c00 0200 0000100000000000
			0c00 0300 0002000000000000
			0c00 0400 0000000000000000
			0c00 0500 2d00000000000000
			0c00 0600 0000000000000000
			0c00 0800 8051010000000000
			1c00 0780 0c00 0180 0800 0100 07000000 0c00 0180 0800 0100 08000000
			0a00 0a00 766f6c2d3100 0000`},
		"reconfigure": {o.reconnect(3), `
			0800 0100 03000000
			0c00 0800 8051010000000000
			0a00 0a00 766f6c2d3100 0000`},
		"status": {message{cmd: cmdStatus, devices: []deviceItem{{2, true}}}, `
			1800 0980 1400 0180 0800 0100 02000000 0500 0200 01000000`},
	} {
		got, err := c.m.encode()
		must(t, err)
		want, err := hex.DecodeString(strings.Join(strings.Fields(c.want), ""))
		must(t, err)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\ngot  %x\nwant %x", name, got, want)
		}
		back, err := decode(c.m.cmd, got)
		must(t, err)
		if !reflect.DeepEqual(back, c.m) {
			t.Errorf("%s: got %+v back, want %+v", name, back, c.m)
		}
	}
}

func attribute(typ uint16, value ...byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = append(b, value...)
	return append(b, make([]byte, -len(b)&3)...)
}

func TestMalformedMessagesAreRefused(t *testing.T) {
	for why, b := range map[string][]byte{
		"an index of 2 bytes":       attribute(attrIndex, 1, 0),
		"an index beyond all":       attribute(attrIndex, 0, 0, 0, 0xff),
		"a size of 4 bytes":         attribute(attrSize, 1, 2, 3, 4),
		"a length beyond the end":   {9, 0, 1, 0, 0, 0, 0, 0},
		"half an attribute":         {8, 0},
		"an empty backend":          attribute(attrBackend),
		"a backend with a zero":     attribute(attrBackend, 'a', 0, 'b', 0),
		"a backend too long":        attribute(attrBackend, make([]byte, 300)...),
		"a socket of another kind":  attribute(attrSockets, attribute(2)...),
		"a socket without number":   attribute(attrSockets, attribute(attrSocketItem)...),
		"a device without state":    attribute(attrDevices, attribute(attrDeviceItem, attribute(attrDeviceIndex, 1, 0, 0, 0)...)...),
		"a device of another kind":  attribute(attrDevices, attribute(2)...),
		"more sockets than allowed": attribute(attrSockets, manySockets()...),
	} {
		if m, err := decode(cmdStatus, b); err == nil {
			t.Errorf("%s: accepted as %+v", why, m)
		}
	}
}

func manySockets() (b []byte) {
	for range MaxConnections + 1 {
		b = append(b, attribute(attrSocketItem, attribute(attrSocketFD, 1, 0, 0, 0)...)...)
	}
	return b
}

func TestAttributesOfANewerKernelArePassedOver(t *testing.T) {
	b := append(attribute(99, 1, 2, 3), attribute(attrIndex, 5, 0, 0, 0)...)
	m, err := decode(cmdConnect, b)
	must(t, err)
	if m.index == nil || *m.index != 5 {
		t.Fatalf("got %+v", m)
	}
}

func TestADeadLinkIsHeard(t *testing.T) {
	event := func(c command, data []byte) genetlink.Message {
		return genetlink.Message{Header: genetlink.Header{Command: uint8(c)}, Data: data}
	}
	for _, c := range []struct {
		m     genetlink.Message
		index int
		ok    bool
	}{
		{event(cmdLinkDead, attribute(attrIndex, 5, 0, 0, 0)), 5, true},
		{event(cmdLinkDead, nil), AnyIndex, true},
		{event(cmdLinkDead, []byte{1}), AnyIndex, true},
		{event(cmdStatus, attribute(attrIndex, 5, 0, 0, 0)), 0, false},
	} {
		if index, ok := deadLink(c.m); index != c.index || ok != c.ok {
			t.Errorf("%+v: got %d, %v", c.m, index, ok)
		}
	}
}

func FuzzDecode(f *testing.F) {
	o := options("vol-1")
	must(&testing.T{}, o.fill())
	m := o.connect()
	m.sockets, m.devices = []uint32{1, 2}, []deviceItem{{1, true}, {2, false}}
	seed, err := m.encode()
	if err != nil {
		f.Fatal(err)
	}
	for n := range len(seed) {
		f.Add(seed[:n])
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(cmdStatus, b)
		if err != nil {
			return
		}
		out, err := m.encode()
		must(t, err)
		if back, err := decode(cmdStatus, out); err != nil || !reflect.DeepEqual(back, m) {
			t.Fatalf("%x: %+v became %+v, %v", b, m, back, err)
		}
	})
}
