// Package node tests csi-mpath node in a real kernel: CSI calls to the real binary,
// block devices, file systems, mounts, and its worker killed under load.
package node
