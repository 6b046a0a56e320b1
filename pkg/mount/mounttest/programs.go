package mounttest

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/program"
)

// programs are what is installed on a Node.
var programs map[string]func(*Node, *program.Call) ([]byte, error)

func init() { // they refer to each other
	programs = map[string]func(*Node, *program.Call) ([]byte, error){
		"dd": dd, "blkid": blkid, "mkfs.ext4": mkfsExt4, "mkfs.xfs": mkfsXFS, "e2fsck": onDevice(nil), "sync": onDevice(nil),
		"xfs_repair": onDevice(nil), "resize2fs": onDevice(grow), "xfs_growfs": growXFS, "mount": mountIt, "umount": umount,
	}
}

// device finds a program's device by its last argument.
func (n *Node) device(path string) (*device, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if d := n.devices[path]; d != nil {
		return d, nil
	}
	return nil, &exit{2, path + ": No such file or directory"}
}

func onDevice(f func(Disk) error) func(*Node, *program.Call) ([]byte, error) {
	return func(n *Node, c *program.Call) ([]byte, error) {
		d, err := n.device(c.Args[len(c.Args)-1])
		if err != nil || f == nil {
			return nil, err
		}
		return nil, f(d.disk)
	}
}

// operands are dd's, by name.
func operands(args []string) map[string]string {
	m := map[string]string{}
	for _, a := range args {
		name, value, _ := strings.Cut(a, "=")
		m[name] = value
	}
	return m
}

func dd(n *Node, c *program.Call) ([]byte, error) {
	o := operands(c.Args)
	if o["if"] != "" {
		d, err := n.device(o["if"])
		if err != nil {
			return nil, err
		}
		off, count := number(o["skip"]), number(o["count"])
		b := make([]byte, count)
		if _, err := d.disk.ReadAt(b, off); err != nil {
			return nil, &exit{1, "dd: error reading: " + err.Error()}
		}
		return b, nil
	}
	d, err := n.device(o["of"])
	if err != nil {
		return nil, err
	}
	if _, err := d.disk.WriteAt(c.Stdin, number(o["seek"])); err != nil {
		return nil, &exit{1, "dd: error writing: " + err.Error()}
	}
	return nil, nil
}

func number(s string) int64 {
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic("mounttest: " + err.Error())
	}
	return v
}

// blkid knows the signatures of Signatures, and file systems.
func blkid(n *Node, c *program.Call) ([]byte, error) {
	d, err := n.device(c.Args[len(c.Args)-1])
	if err != nil {
		return nil, err
	}
	head := make([]byte, 2<<20)
	if _, err := d.disk.ReadAt(head, 0); err != nil {
		return nil, &exit{2, ""} // as the real one does: "nothing found"
	}
	for _, s := range Signatures {
		if string(head[s.Off:int(s.Off)+len(s.Magic)]) == s.Magic {
			return []byte("DEVNAME=" + d.path + "\n" + s.Tags), nil
		}
	}
	return nil, &exit{2, ""}
}

// Signature is how something on a disk is recognized, and what blkid says of it.
type Signature struct {
	Off         int64
	Magic, Tags string
}

// Signatures are what may be on a disk.
var Signatures = []Signature{
	{0, "XFSB", "TYPE=xfs\nUSAGE=filesystem\n"},
	{1024 + 0x38, "\x53\xef", "TYPE=ext4\nUSAGE=filesystem\n"},
	{0, "LUKS\xba\xbe", "TYPE=crypto_LUKS\nUSAGE=crypto\n"},
	{512 + 24, "LVM2 001", "TYPE=LVM2_member\nUSAGE=raid\n"},
	{4086, "SWAPSPACE2", "TYPE=swap\nUSAGE=other\n"},
	{4096, "\xfc\x4e\x2b\xa9", "TYPE=linux_raid_member\nUSAGE=raid\n"},
	{512, "EFI PART", "PTTYPE=gpt\n"},
	{510, "\x55\xaa", "PTTYPE=dos\n"},
}

// mountIt is mount in the three forms that a mount.Host uses: -t TYPE -o OPTIONS
// DEVICE TARGET; --bind SOURCE TARGET; -o remount,bind,ro TARGET.
func mountIt(n *Node, c *program.Call) ([]byte, error) {
	var pos []string
	var options, fsType string
	bind := false
	for i := 0; i < len(c.Args); i++ {
		switch a := c.Args[i]; {
		case a == "-o":
			i++
			options = c.Args[i]
		case a == "-t":
			i++
			fsType = c.Args[i]
		case a == "--bind":
			bind = true
		case !strings.HasPrefix(a, "-"):
			pos = append(pos, a)
		}
	}
	switch {
	case bind:
		return nil, n.bind(pos[0], pos[1])
	case options == "remount,bind,ro":
		return nil, n.protect(pos[0])
	}
	return nil, n.attach(fsType, options, pos[0], pos[1])
}

func refused(format string, a ...any) error {
	return &exit{32, "mount: " + fmt.Sprintf(format, a...)}
}
