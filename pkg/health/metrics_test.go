package health

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetricsAreThoseOfTheVolumesThereAre(t *testing.T) {
	there := []Numbers{{Volume: "a", Up: 1, Down: 2, Outstanding: 3, InDoubt: 4}, {Volume: "b"}}
	c := NewCollector(func() []Numbers { return there })
	want := `
# HELP csi_mpath_volume_paths Paths of a volume on this node, up or down.
# TYPE csi_mpath_volume_paths gauge
csi_mpath_volume_paths{state="down",volume="a"} 2
csi_mpath_volume_paths{state="down",volume="b"} 0
csi_mpath_volume_paths{state="up",volume="a"} 1
csi_mpath_volume_paths{state="up",volume="b"} 0
# HELP csi_mpath_volume_requests_outstanding Requests of a volume without an answer.
# TYPE csi_mpath_volume_requests_outstanding gauge
csi_mpath_volume_requests_outstanding{volume="a"} 3
csi_mpath_volume_requests_outstanding{volume="b"} 0
# HELP csi_mpath_volume_writes_in_doubt Writes on lost paths of a volume that wait for a fence.
# TYPE csi_mpath_volume_writes_in_doubt gauge
csi_mpath_volume_writes_in_doubt{volume="a"} 4
csi_mpath_volume_writes_in_doubt{volume="b"} 0
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	there = nil
	if n := testutil.CollectAndCount(c); n != 0 {
		t.Errorf("%d metrics of no volume", n)
	}
	problems, err := testutil.CollectAndLint(NewCollector(func() []Numbers { return []Numbers{{Volume: "a"}} }))
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
