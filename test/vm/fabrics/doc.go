// Package fabrics holds tests of NVMe/TCP between us and the kernel: our host
// against its target (nvmet), and its host (nvme-tcp with native multipath,
// driven by Debian's nvme-cli) against our target. The stories are the same in
// both directions; with LONG=1 they are told of the kernel against itself, too,
// which says whether a story asks for what a kernel does not do.
package fabrics
