package scsi

import (
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

func profile() *Profile {
	p := &Profile{Target: "iqn.t", Serial: "s1", Capacity: Capacity{LastLBA: 2047, BlockSize: 512, PhysicalExp: 3}}
	p.SetDeviceID([]Designator{
		{Association: OfLUN, Type: DesignT10Vendor, ID: []byte("vendor s1")},
		{Association: OfLUN, Type: DesignNAA, ID: naa(2)},
		{Association: OfLUN, Type: DesignNAA, ID: naa(1)},
		{Association: OfPort, Type: DesignNAA, ID: naa(9)},
		{Association: OfPort, Type: DesignRelativePort, ID: []byte{0, 0, 0, 4}},
		{Association: OfPort, Type: DesignPortGroup, ID: []byte{0, 0, 1, 2}},
	})
	return p
}

func TestIdentityComesFromTheUnitsOwnDesignators(t *testing.T) {
	p := profile()
	if id := p.Identity(); id.NAA != "6000000000000001" || id.Serial != "s1" || id.Weak() || id.String() != "naa.6000000000000001" {
		t.Errorf("%+v", id)
	}
	if p.RelativePort != 4 || p.Group != 0x102 {
		t.Error(p.RelativePort, p.Group)
	}
}

func TestVendorStringsAndZeroesAreAWeakIdentity(t *testing.T) {
	for _, ds := range [][]Designator{nil,
		{{Type: DesignT10Vendor, ID: []byte("x")}},
		{{Type: DesignNAA, ID: make([]byte, 8)}},
		{{Association: OfPort, Type: DesignNAA, ID: naa(1)}}} {
		var p Profile
		p.SetDeviceID(ds)
		if !p.Identity().Weak() {
			t.Errorf("%+v is strong", p.Identity())
		}
	}
}

func TestWWIDMatchesInTheFormsPeopleWrite(t *testing.T) {
	id := profile().Identity()
	for _, w := range []string{"naa.6000000000000001", "NAA.6000000000000001", "0x6000000000000001", "36000000000000001", " 6000000000000001 "} {
		if !id.Matches(w) {
			t.Errorf("%q does not match", w)
		}
	}
	for _, w := range []string{"", "0x", "naa.", "6000000000000002", "26000000000000001", "eui.6000000000000001"} {
		if id.Matches(w) {
			t.Errorf("%q matches", w)
		}
	}
	if (Identity{}).Matches("3") {
		t.Error("an empty identity matches")
	}
}

func TestAnotherVolumeIsToldApart(t *testing.T) {
	for want, change := range map[string]func(p *Profile){
		"target name": func(p *Profile) { p.Target = "iqn.u" },
		"device is":   func(p *Profile) { p.Device.NAA = "6000000000000007" },
		"serial":      func(p *Profile) { p.Serial = "s2" },
		"eui":         func(p *Profile) { p.Device.EUI = "1122334455667788" },
		"block size":  func(p *Profile) { p.BlockSize = 4096 },
	} {
		q := profile()
		change(q)
		if err := profile().SameVolume(q); err == nil || want != "eui" && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	q := profile()
	q.LastLBA++
	if err := profile().SameVolume(q); err != nil {
		t.Errorf("growth: %v", err)
	}
}

func TestLimitsFollowThePages(t *testing.T) {
	p := profile()
	if l := p.Limits(); l != (blk.Limits{BlockSize: 512, PhysicalBlock: 4096, Size: 1 << 20}) {
		t.Errorf("bare: %+v", l)
	}
	p.BlockLimits = BlockLimits{MaxTransfer: 2048, MaxUnmap: 0xffffffff, MaxUnmapDescriptors: 1, UnmapGranule: 8}
	p.LBPME, p.LBPU, p.LBPWS, p.Provisioning.LBPRZ = true, true, true, true
	p.WCE, p.DPOFUA = true, true
	l := p.Limits()
	if l.MaxTransfer != 1<<20 || l.MaxUnmap != (1<<32-1)*512 || l.MaxZero != unreportedWriteSame || !l.ZeroUnmaps ||
		l.UnmapGranule != 4096 || !l.WriteCache || !l.FUA || !p.UseUnmap() {
		t.Errorf("%+v", l)
	}
	p.BlockLimits.MaxUnmap, p.MaxWriteSame = 0, 64
	if l := p.Limits(); p.UseUnmap() || l.MaxUnmap != 64*512 || l.MaxZero != 64*512 {
		t.Errorf("trim by WRITE SAME: %+v", l)
	}
}
