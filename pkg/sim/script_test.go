package sim

import (
	"bytes"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	nvmepdu "github.com/csi-mpath/csi-mpath/pkg/nvmetcp/pdu"
)

func TestAScriptReadsAsItWasPrinted(t *testing.T) {
	for seed := range uint64(300) {
		want := Generate(seed, "")
		got, err := Parse(strings.NewReader(want.String()))
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, want)
		}
		if got.String() != want.String() {
			t.Fatalf("seed %d: printed\n%s\nread as\n%s", seed, want, got)
		}
	}
}

func TestAScriptThatCannotBePlayedIsRefused(t *testing.T) {
	for _, text := range []string{
		"set seed x", "set nothing 1", "set paths 1", "set paths 0/1", "set blocks 3", "set clients 0", "set run 0s", "set procs 99",
		"set delay 1h", "set seed", "1s", "cut 1", "1s cut", "1s cut 3", "1s cut 1 for 1s", "1s hole 1 tx", "1s hole 1 up for 1s",
		"-1s cut 1", "1s nothing", "1s hold writes 1 late for 1h", "1s attention 1 29 1", "1s reconnect 5", "1s sense 6 29",
		"1s slow writes 1 1h", "9999h cut 1", "set streams 101", "set failback 0s", "set merge-deadline 1s", "set selector best",
		"1s drain", "1s prefer 3", "1s failback 1", "1s tune polling", "1s tune polling 1h", "1s tune fence 1s",
		"set transport fc", "set queues 0", "set align 32", "set transport nvme-tcp\nset target-depth 2", "set transport nvme-tcp\nset fence-timeout 1s",
		"1s reset 1", "set transport nvme-tcp\n1s spoil 1 1", "1s notice 1", "1s hold admin 1 for 1s", "set transport nvme-tcp\n1s ping 1", "set transport nvme-tcp\n1s sense 6 29 0 1",
		"set transport nvme-tcp\n1s mute admin 1", "set transport nvme-tcp\n1s hold admin 1 late for 1s",
	} {
		if _, err := Parse(strings.NewReader(text)); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

func FuzzAScriptOfAnyContentIsReadOrRefused(f *testing.F) {
	f.Add([]byte("set seed 1\n1s cut 1\n2s hole 1 both for 3s # comment\n"))
	f.Add([]byte(Generate(7, "").String()))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Parse(bytes.NewReader(b))
		if err != nil {
			return
		}
		again, err := Parse(strings.NewReader(s.String()))
		if err != nil || again.String() != s.String() {
			t.Fatalf("%v\n%s\n%s", err, s, again)
		}
	})
}

// stream is some PDUs: commands, and a response with sense.
func stream() (b []byte) {
	for i := range 4 {
		h := make([]byte, pdu.HeaderLen)
		(&pdu.SCSICommand{ITT: uint32(i), Write: true, Final: true, EDTL: 100, DataLen: 25 * i}).Put(h)
		b = append(b, h...)
		b = append(b, bytes.Repeat([]byte{byte(i)}, 25*i+pdu.Pad(25*i))...)
	}
	return b
}

// capsules are some PDUs of NVMe/TCP: commands with data in them.
func capsules() (b []byte) {
	for i := range 4 {
		p := make([]byte, nvmepdu.Layout{}.DataStart(nvmepdu.CommandLen)+25*i)
		c := nvme.Command{CID: uint16(i)}
		c.Put(nvmepdu.CommandSpace(p))
		nvmepdu.Layout{}.PutCapsuleCmd(p, 25*i)
		b = append(b, p...)
	}
	return b
}

func TestTheCutterFindsPDUsWhereverTheStreamIsCut(t *testing.T) {
	for _, v := range []struct {
		all    []byte
		f      framing
		number func(b []byte) int
		length func(i int) int
	}{
		{stream(), iscsiDialect{}, func(b []byte) int { return int(pdu.ITT(b)) },
			func(i int) int { return pdu.HeaderLen + min(25*i+pdu.Pad(25*i), maxSense) }},
		{capsules(), &nvmeDialect{}, func(b []byte) int { return int(nvmepdu.Entry(b)[2]) }, func(int) int { return nvmepdu.CommandLen }},
	} {
		for at := range v.all {
			var c cutter
			n := 0
			note := func(b []byte) {
				if v.number(b) != n || len(b) != v.length(n) {
					t.Fatalf("%T cut at %d: PDU %d is taken for %d and has %d bytes", v.f, at, n, v.number(b), len(b))
				}
				n++
			}
			c.feed(v.f, v.all[:at], note)
			c.feed(v.f, v.all[at:], note)
			if n != 4 {
				t.Fatalf("%T cut at %d: %d PDUs", v.f, at, n)
			}
		}
	}
}

func FuzzTheCutterTakesAnyStream(f *testing.F) {
	f.Add(stream(), 10)
	f.Add(capsules(), 100)
	f.Fuzz(func(_ *testing.T, b []byte, at int) {
		at = min(max(at, 0), len(b))
		none := func([]byte) {}
		for _, d := range []framing{iscsiDialect{}, &nvmeDialect{}} {
			var c cutter
			c.feed(d, b[:at], none)
			c.feed(d, b[at:], none)
		}
	})
}
