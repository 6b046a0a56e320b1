package kernel

import (
	"errors"
	"fmt"
	"os"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// exchange sends one message and waits for its answer, for as long as the
// kernel takes.
func exchange(m message) (message, error) {
	data, err := m.encode()
	if err != nil {
		return message{}, fmt.Errorf("nbd: encode %v: %w", m.cmd, err)
	}
	c, family, err := dial()
	if err != nil {
		return message{}, err
	}
	defer func() { _ = c.Close() }()
	flags := netlink.Request
	if m.cmd == cmdReconfigure || m.cmd == cmdDisconnect {
		flags |= netlink.Acknowledge // the only answer they have
	}
	all, err := c.Execute(genetlink.Message{
		Header: genetlink.Header{Command: uint8(m.cmd), Version: family.Version}, Data: data,
	}, family.ID, flags)
	if err != nil {
		return message{}, callError(m, err)
	}
	if flags&netlink.Acknowledge != 0 {
		return message{cmd: m.cmd}, nil
	}
	for _, a := range all {
		if a.Header.Command == uint8(m.cmd) {
			return decode(m.cmd, a.Data)
		}
	}
	return message{}, fmt.Errorf("nbd: the kernel's answer to %v holds none", m.cmd)
}

// callError keeps the errno for errors.Is and says what it means.
func callError(m message, err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w (%v: %w)", ErrNotPermitted, m.cmd, err)
	}
	if m.index != nil {
		return fmt.Errorf("nbd%d: %v: %w", *m.index, m.cmd, err)
	}
	return fmt.Errorf("nbd: %v: %w", m.cmd, err)
}

// dial opens a socket to the family, which is there while the module is.
func dial() (*genetlink.Conn, genetlink.Family, error) {
	c, err := genetlink.Dial(nil)
	if err != nil {
		return nil, genetlink.Family{}, fmt.Errorf("nbd: generic netlink: %w", err)
	}
	family, err := c.GetFamily(familyName)
	if err != nil {
		_ = c.Close()
		if errors.Is(err, os.ErrNotExist) {
			return nil, family, ErrNoModule
		}
		return nil, family, fmt.Errorf("nbd: look up the kernel's nbd family: %w", err)
	}
	return c, family, nil
}
