// Package csi tests the whole driver as it is installed, on this machine: agent,
// controller and node plugins as processes of their own, over mutual TLS, iSCSI and
// NVMe/TCP, with file systems over FUSE. Its tests have the build tag interop.
package csi
