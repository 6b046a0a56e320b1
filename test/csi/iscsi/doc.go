// Package iscsi runs csi-sanity over the real commands, with volumes over iSCSI. Its test
// has the build tag interop.
package iscsi
