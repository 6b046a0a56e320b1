// Package nvme runs csi-sanity over the real commands, with volumes over NVMe/TCP. Its test
// has the build tag interop.
package nvme
