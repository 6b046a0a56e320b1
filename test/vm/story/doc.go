// Package story tells a volume's life in a real kernel: agent, controller and node
// plugins as they are installed, LVM's thin volumes exported by the kernel's own
// targets, block devices of nbd. Its tests have the build tag vm.
package story
