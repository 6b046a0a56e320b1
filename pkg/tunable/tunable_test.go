package tunable

import (
	"strings"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/merge"
	"github.com/csi-mpath/csi-mpath/pkg/pathsel"
	"github.com/csi-mpath/csi-mpath/pkg/poll"
)

func TestNothingGivenMeansTheDefaults(t *testing.T) {
	s, err := Parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.PathSelector != "service-time" || s.NoPathTimeout != Never || s.PathTimeout != 5*time.Second || s.MinPaths != 1 ||
		s.QueueDepth != 128 || s.Lanes != 1 || s.ShutdownTimeout != 30*time.Second || s.FenceTimeout != 15*time.Second {
		t.Errorf("defaults: %+v", s)
	}
}

func TestValuesAreRead(t *testing.T) {
	s, err := Parse(map[string]string{"pathSelector": "round-robin", "mergeDeadline": "auto", "polling": "50us", "noPathTimeout": "1m",
		"lanes": "4", "dataDigest": "crc32c", "sourceAddresses": "eth0,,10.0.0.1", "failback": "manual"})
	if err != nil {
		t.Fatal(err)
	}
	if s.PathSelector != "round-robin" || s.MergeDeadline != MergeAuto || s.Polling != 50*time.Microsecond || s.Lanes != 4 ||
		!s.DataDigest || s.HeaderDigest || len(s.SourceAddresses) != 3 || s.Failback != FailbackManual {
		t.Errorf("read: %+v", s)
	}
}

func TestErrorsNameTheKey(t *testing.T) {
	for key, values := range map[string][]string{
		"pathSelector": {"fastest"}, "mergeDeadline": {"101ms", "-1s", "x", ""}, "polling": {"2ms", "on"}, "noPathTimeout": {"-1s", "25h", "forever"},
		"pathTimeout": {"0", "999ms", "6m"}, "commandTimeout": {"0", "11m"}, "minPaths": {"0", "33", "x"}, "failback": {"0", "25h"},
		"lanes": {"0", "17", "2"}, "queueDepth": {"0", "4097"}, "sessionsPerPath": {"0", "9"}, "headerDigest": {"yes"}, "dataDigest": {""},
		"fenceTimeout": {"0", "2h"}, "keepAliveTimeout": {"99ms", "61s"}, "sourceAddresses": {"a/b", strings.Repeat("x", 65), strings.Repeat(",", 32)},
		"shutdownTimeout": {"-1s", "11m"}, "mergedeadline": {"0"}, "": {""},
	} {
		for _, v := range values {
			if _, err := Parse(map[string]string{key: v}); err == nil || !strings.Contains(err.Error(), key) {
				t.Errorf("%s=%q: %v", key, v, err)
			}
		}
	}
}

func TestTheRangesAreThoseOfTheParts(t *testing.T) {
	if maxMergeDeadline != merge.MaxDeadline || maxPolling != time.Duration(poll.MaxPolling) || maxPaths != pathsel.MaxPaths {
		t.Error("a range differs from that of the part it is about")
	}
}

func TestAbsentKeysKeepTheirValue(t *testing.T) {
	got := Merge(map[string]string{"minPaths": "2", "polling": "off"}, map[string]string{"polling": "adaptive"})
	if got["minPaths"] != "2" || got["polling"] != "adaptive" {
		t.Errorf("merged: %v", got)
	}
}

func TestOnlyLiveTunablesChange(t *testing.T) {
	old := map[string]string{"queueDepth": "64", "noPathTimeout": "30s"}
	if err := CheckChange(old, map[string]string{"queueDepth": "64", "mergeDeadline": "auto"}); err != nil {
		t.Errorf("a live one, and one that stays: %v", err)
	}
	for _, key := range []string{"lanes", "queueDepth", "sessionsPerPath"} {
		if err := CheckChange(old, map[string]string{key: "3"}); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, d := range all {
		f.Add(d.name, d.standard)
	}
	f.Fuzz(func(t *testing.T, key, value string) {
		s, err := Parse(map[string]string{key: value})
		if err != nil {
			return
		}
		if s.PathTimeout < minPathTimeout || s.QueueDepth < 1 || s.QueueDepth > maxQueueDepth || len(s.SourceAddresses) > maxPaths {
			t.Errorf("%q=%q gave %+v", key, value, s)
		}
	})
}
