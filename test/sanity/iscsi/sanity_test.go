// Package iscsi runs csi-sanity with volumes over iSCSI: the suite can only run once in
// a process.
package iscsi

import (
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/test/sanity/whole"
)

func TestTheDriverPassesCSISanityOverISCSI(t *testing.T) { whole.Sanity(t, backend.ISCSI) }
