// Package initiator holds tests of our target with the initiator that most
// people have: Debian's open-iscsi and multipath-tools, over the kernel's
// iscsi_tcp, scsi_dh_alua and dm-multipath.
package initiator
