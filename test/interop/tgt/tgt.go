// Package tgt runs real iSCSI target daemons (Debian's tgtd) on loopback.
//
// Two daemons over one backing file with one identity look like the two
// controllers of an array: tgtd reads and writes through the page cache, and
// there is one page cache. Each daemon has its own control socket, so other
// daemons of the machine are not in the way and are never touched.
package tgt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/csi-mpath/csi-mpath/test/child"
	"github.com/csi-mpath/csi-mpath/test/port"
)

// readyWithin bounds the start of a daemon, from fork to a portal that accepts.
const readyWithin = time.Minute

// adminWithin bounds one tgtadm call.
const adminWithin = 20 * time.Second

// Config describes one daemon with one target and one LUN.
type Config struct {
	Dir    string // for the control socket, exists; short: it holds a unix socket
	Name   string // unique within Dir
	Target string // IQN
	File   string // backing file, exists
	ID     string // SCSI id, at most 24 characters
	Serial string // unit serial number, at most 36 characters
	LUN    int    // 1..255; 0 is taken as 1
	Block  int    // bytes: 512 or 4096; 0 is taken as 512

	// User and Secret ask for CHAP when set; tgt wants 12..16 characters.
	User, Secret string
}

// Daemon is one tgtd. Kill and Restart keep its portal's address.
type Daemon struct {
	cfg    Config
	portal *port.Held // ours also while the daemon is dead
	child  *child.Child
}

// Start runs a daemon on a free loopback port and waits until its LUN is there.
func Start(ctx context.Context, cfg Config) (*Daemon, error) {
	for _, need := range []string{"tgtd", "tgtadm"} {
		if _, err := exec.LookPath(need); err != nil {
			return nil, fmt.Errorf("%s is missing: run make setup as root", need)
		}
	}
	if cfg.LUN == 0 {
		cfg.LUN = 1
	}
	if cfg.Block == 0 {
		cfg.Block = 512
	}
	portal, err := port.Hold()
	if err != nil {
		return nil, err
	}
	d := &Daemon{cfg: cfg, portal: portal}
	if err := d.Restart(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Close kills the daemon and gives up its port.
func (d *Daemon) Close() error {
	d.Kill()
	return d.portal.Close()
}

// Portal is the daemon's address, host:port.
func (d *Daemon) Portal() string { return d.portal.Addr() }

// Alive reports whether the daemon runs.
func (d *Daemon) Alive() bool { return d.child != nil && d.child.Alive() }

// Kill is kill -9.
func (d *Daemon) Kill() {
	if d.child != nil {
		d.child.Kill()
	}
}

// Freeze is SIGSTOP: it stays connected, accepts connections, and is silent.
func (d *Daemon) Freeze() error { return syscall.Kill(d.child.PID(), syscall.SIGSTOP) }

// Thaw lets a frozen daemon go on.
func (d *Daemon) Thaw() error { return syscall.Kill(d.child.PID(), syscall.SIGCONT) }

// Restart starts the daemon again on its old port, and waits until its LUN is
// there. What it knew about sessions is gone; the data is in the file.
func (d *Daemon) Restart(ctx context.Context) error {
	d.Kill()
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	// A killed daemon leaves its control socket and lock behind.
	for _, left := range []string{".0", ".0.lock"} {
		if err := os.Remove(d.ipc() + left); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	c, err := child.Start(child.Options{Env: []string{"TGT_IPC_SOCKET=" + d.ipc()}},
		"tgtd", "-f", "--nr_iothreads", "4", "--iscsi", "portal="+d.Portal())
	if err != nil {
		return err
	}
	d.child = c
	if err := d.configure(ctx); err != nil {
		d.Kill()
		return fmt.Errorf("tgtd %s at %s: %w: %s", d.cfg.Name, d.Portal(), err, c.Output())
	}
	return nil
}

func (d *Daemon) ipc() string { return filepath.Join(d.cfg.Dir, d.cfg.Name) }

func (d *Daemon) configure(ctx context.Context) error {
	if err := d.until(ctx, "control socket", d.controls); err != nil {
		return err
	}
	lun := []string{"--mode", "logicalunit", "--tid", "1", "--lun", fmt.Sprint(d.cfg.LUN)}
	steps := [][]string{
		{"--op", "new", "--mode", "target", "--tid", "1", "-T", d.cfg.Target},
		append([]string{"--op", "new", "--bstype", "rdwr", "--blocksize", fmt.Sprint(d.cfg.Block), "-b", d.cfg.File}, lun...),
		append([]string{"--op", "update", "--params", "vendor_id=MPATH,product_id=DISK,thin_provisioning=1," +
			"scsi_id=" + d.cfg.ID + ",scsi_sn=" + d.cfg.Serial}, lun...),
	}
	if d.cfg.User != "" {
		steps = append(steps,
			[]string{"--op", "new", "--mode", "account", "--user", d.cfg.User, "--password", d.cfg.Secret},
			[]string{"--op", "bind", "--mode", "account", "--tid", "1", "--user", d.cfg.User})
	}
	// Last: nobody may log in before the LUN has its identity.
	steps = append(steps, []string{"--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL"})
	for _, s := range steps {
		if err := d.admin(ctx, s...); err != nil {
			return err
		}
	}
	return d.until(ctx, "portal", d.accepts)
}

// until polls a condition, since tgtd tells nobody when it is ready.
func (d *Daemon) until(ctx context.Context, what string, ready func(context.Context) error) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("its %s was not there within %v: %w", what, readyWithin, err)
		case <-d.child.Done():
			return errors.New("it ended")
		case <-tick.C:
		}
	}
}

func (d *Daemon) controls(ctx context.Context) error {
	if _, err := os.Stat(d.ipc() + ".0"); err != nil {
		return err
	}
	return d.admin(ctx, "--op", "show", "--mode", "sys")
}

func (d *Daemon) accepts(ctx context.Context) error {
	var nd net.Dialer
	c, err := nd.DialContext(ctx, "tcp", d.Portal())
	if err != nil {
		return err
	}
	return c.Close()
}

// admin runs one tgtadm command. A failure names the operation, not the
// arguments: they may hold a secret.
func (d *Daemon) admin(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, adminWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, "tgtadm", append([]string{"--lld", "iscsi"}, args...)...)
	cmd.Env = append(os.Environ(), "TGT_IPC_SOCKET="+d.ipc())
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("tgtadm %s: %w: %s", strings.Join(args[:4], " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Update changes parameters of the LUN, as tgtadm knows them: "scsi_sn=X".
func (d *Daemon) Update(ctx context.Context, params string) error {
	return d.admin(ctx, "--op", "update", "--mode", "logicalunit", "--tid", "1",
		"--lun", fmt.Sprint(d.cfg.LUN), "--params", params)
}

// Log is the end of what the daemon printed.
func (d *Daemon) Log() string { return d.child.Output() }
