// Package vm holds the tests that need a kernel of their own: /dev/nbdN, file
// systems on it, a plugin that is killed under load.
//
// They are built with the tag vm and run inside a virtual machine:
//
//	make vm-test                 Debian's 6.12
//	make vm-test KERNEL=6.1      the kernel before
//	make vm-test RUN=TestName
//
// The rooms: vmrun starts the machine and passes the exit code on, vminit is
// its process 1, spec is what the one tells the other. kmsg judges the kernel's
// log, rig starts targets and the product, writers writes blocks and proves
// later that none was lost. nbdkernel, product and reclaim are tests of the
// product's parts and of the whole, initiator is the kernel's own initiator
// against our target, fabrics is NVMe/TCP between us and the kernel, storage the
// agent's stores and backends over them, agent its exports by the kernel's targets. A package
// of VM tests calls kmsg.Main from its TestMain, and kmsg.Watch at the start of
// each test.
package vm
