package main

import (
	"fmt"
	"strings"
)

// machine is a virtual machine's command line, pinned: no defaults of qemu, no
// hardware virtualisation, the same CPU everywhere.
type machine struct {
	cpus, memory  int // CPUs, MiB
	kernel        string
	initrd        string
	log, exit     string // files
	shares        []string
	kernelOptions string
}

// bootOptions: an oops is a panic, a panic ends the machine. Emulated CPUs on a
// busy host stand still at times, so the watchdogs wait longer than usual.
const bootOptions = "console=ttyS0 8250.nr_uarts=4 panic=-1 oops=panic random.trust_cpu=on mitigations=off " +
	"nokaslr no_timer_check tsc=reliable log_buf_len=8M printk.devkmsg=on rcupdate.rcu_cpu_stall_timeout=120 nosoftlockup nowatchdog"

func (m *machine) args() []string {
	a := []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-machine", "pc", "-accel", fmt.Sprint("tcg,thread=multi,tb-size=", tbSizeMiB),
		"-cpu", "max,la57=off", "-m", fmt.Sprint(m.memory), "-smp", fmt.Sprint(m.cpus),
		"-kernel", m.kernel, "-initrd", m.initrd,
		"-chardev", "file,id=k,path=" + escape(m.log), "-device", "isa-serial,chardev=k",
		"-chardev", "stdio,id=o,signal=off", "-device", "isa-serial,chardev=o",
		"-chardev", "file,id=x,path=" + escape(m.exit), "-device", "isa-serial,chardev=x",
		"-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap",
		"-device", "virtio-9p-pci,fsdev=root,mount_tag=root",
	}
	for i, dir := range m.shares {
		a = append(a,
			"-fsdev", fmt.Sprintf("local,id=rw%d,path=%s,security_model=none,multidevs=remap", i, escape(dir)),
			"-device", fmt.Sprintf("virtio-9p-pci,fsdev=rw%d,mount_tag=rw%d", i, i))
	}
	options := bootOptions
	if m.kernelOptions != "" {
		options += " " + m.kernelOptions
	}
	return append(a, "-append", options)
}

// escape: a comma ends an option of qemu, two are one.
func escape(path string) string { return strings.ReplaceAll(path, ",", ",,") }
