package nvmetcp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
)

// logOf is a discovery log as bytes.
func logOf(generation uint64, records ...nvme.Record) []byte {
	b := nvme.DiscoveryHeader{Generation: generation, Records: uint64(len(records))}.Append(nil)
	for i := range records {
		b = records[i].Append(b)
	}
	return b
}

func subsystemAt(name, address, service string) nvme.Record {
	r := nvme.Record{Transport: nvme.TransportTCP, Family: nvme.FamilyIPv4, Subtype: nvme.SubtypeNVM, PortID: 1,
		Service: service, Subsystem: "nqn.2026-01.io.example:" + name, Address: address}
	if strings.Contains(address, ":") {
		r.Family = nvme.FamilyIPv6
	}
	return r
}

func referralTo(address string) nvme.Record {
	r := subsystemAt("", address, "8009")
	r.Subtype, r.Subsystem = nvme.SubtypeReferral, nvme.DiscoveryNQN
	return r
}

// readerOf reads a log that next may replace before each read.
func readerOf(log []byte, reads *[]uint64, next func(n int) []byte) func(uint64, []byte) error {
	return func(offset uint64, b []byte) error {
		if next != nil {
			if l := next(len(*reads)); l != nil {
				log = l
			}
		}
		*reads = append(*reads, offset)
		if len(b) > discoveryChunk || len(b)%4 != 0 {
			return fmt.Errorf("read of %d bytes", len(b))
		}
		if offset+uint64(len(b)) > uint64(len(log)) {
			return errors.New("invalid field")
		}
		copy(b, log[offset:])
		return nil
	}
}

func manyRecords(n int, address string) []nvme.Record {
	var out []nvme.Record
	for i := range n {
		out = append(out, subsystemAt(fmt.Sprint("s", i), address, "4420"))
	}
	return out
}

// B-21: 40 records are ten pages, read by rising offset between two headers.
func TestB21ALongDiscoveryLogIsReadInPieces(t *testing.T) {
	want := manyRecords(40, "192.0.2.1")
	var reads []uint64
	got, err := readDiscoveryLog(readerOf(logOf(7, want...), &reads, nil))
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%d records, %v", len(got), err)
	}
	if len(reads) != 12 || reads[0] != 0 || reads[11] != 0 || !slices.IsSorted(reads[:11]) || reads[10] != 1024+36*1024 {
		t.Errorf("reads at %d", reads)
	}
}

func TestALogThatEndsInAnOddPieceIsReadWhole(t *testing.T) {
	for n := range 10 {
		var reads []uint64
		if got, err := readDiscoveryLog(readerOf(logOf(1, manyRecords(n, "192.0.2.1")...), &reads, nil)); err != nil || len(got) != n {
			t.Errorf("%d of %d records, %v", len(got), n, err)
		}
	}
}

// B-21: GENCTR changes between the reads.
func TestB21ADiscoveryLogThatChangesIsReadAgain(t *testing.T) {
	old, young := manyRecords(9, "192.0.2.1"), manyRecords(5, "192.0.2.2")
	for at := 1; at <= 5; at++ {
		var reads []uint64
		got, err := readDiscoveryLog(readerOf(logOf(1, old...), &reads, func(n int) []byte {
			if n == at {
				return logOf(2, young...)
			}
			return nil
		}))
		want := young
		if at == 5 { // behind the second header
			want = old
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("change before read %d: %d records, %v", at, len(got), err)
		}
	}
}

func TestADiscoveryLogThatNeverRestsIsGivenUp(t *testing.T) {
	var reads []uint64
	_, err := readDiscoveryLog(readerOf(nil, &reads, func(n int) []byte { return logOf(uint64(n), manyRecords(3, "192.0.2.1")...) }))
	if !errors.Is(err, ErrUnavailable) || len(reads) != 3*maxLogReads {
		t.Errorf("%v after %d reads", err, len(reads))
	}
}

func TestABadDiscoveryLogIsAnError(t *testing.T) {
	format := logOf(1)
	format[16] = 1
	for name, log := range map[string][]byte{
		"fewer records than it claims": logOf(1, manyRecords(5, "192.0.2.1")...)[:3*1024],
		"too many records":             nvme.DiscoveryHeader{Records: nvme.MaxRecords + 1}.Append(nil),
		"unknown format":               format,
		"no header":                    nil,
	} {
		var reads []uint64
		if got, err := readDiscoveryLog(readerOf(log, &reads, nil)); err == nil {
			t.Errorf("%s: %d records", name, len(got))
		}
	}
}

// net is a network of discovery controllers.
type network map[string][]nvme.Record

func (n network) ask(asked *[]string) askFunc {
	return func(address, nqn string) ([]nvme.Record, netip.AddrPort, error) {
		*asked = append(*asked, address)
		records, ok := n[address]
		if !ok {
			return nil, netip.AddrPort{}, errors.New("connection refused")
		}
		remote, _ := netip.ParseAddrPort(address)
		return records, remote, nil
	}
}

func walkFrom(t *testing.T, n network, address string) (*Discovery, []string) {
	t.Helper()
	var asked []string
	d, err := walkReferrals(site{address: address, nqn: nvme.DiscoveryNQN}, n.ask(&asked))
	if err != nil {
		t.Fatal(err)
	}
	return d, asked
}

func names(d *Discovery) string {
	var out []string
	for _, s := range d.Subsystems {
		n := strings.TrimPrefix(s.NQN, "nqn.2026-01.io.example:")
		for _, p := range s.Portals {
			n += " " + p.Address
		}
		out = append(out, n)
	}
	return strings.Join(out, ", ")
}

// B-21: a referral to itself, and A -> B -> A.
func TestB21ReferralsAreFollowedOnceEach(t *testing.T) {
	self := referralTo("192.0.2.1")
	self.Subtype = nvme.SubtypeDiscovery
	n := network{
		"192.0.2.1:8009": {self, referralTo("192.0.2.1"), referralTo("192.0.2.2"), subsystemAt("a", "192.0.2.1", "4420")},
		"192.0.2.2:8009": {referralTo("192.0.2.1"), referralTo("192.0.2.3"), subsystemAt("b", "192.0.2.2", "4420"), subsystemAt("a", "192.0.2.2", "4420")},
		"192.0.2.3:8009": {referralTo("192.0.2.2"), referralTo("192.0.2.3"), subsystemAt("b", "192.0.2.2", "4420")},
	}
	d, asked := walkFrom(t, n, "192.0.2.1:8009")
	if got := names(d); got != "a 192.0.2.1:4420 192.0.2.2:4420, b 192.0.2.2:4420" || len(asked) != 3 || len(d.Skipped) != 0 {
		t.Errorf("%s; asked %v; skipped %v", got, asked, d.Skipped)
	}
}

func TestAReferralThatDoesNotAnswerIsLeftOut(t *testing.T) {
	n := network{"192.0.2.1:8009": {referralTo("192.0.2.9"), subsystemAt("a", "192.0.2.1", "4420")}}
	d, _ := walkFrom(t, n, "192.0.2.1:8009")
	if names(d) != "a 192.0.2.1:4420" || len(d.Skipped) != 1 || !strings.Contains(d.Skipped[0], "192.0.2.9:8009: connection refused") {
		t.Errorf("%+v", d)
	}
}

func TestTheFirstControllerMustAnswer(t *testing.T) {
	var asked []string
	if d, err := walkReferrals(site{address: "192.0.2.1:8009"}, network{}.ask(&asked)); err == nil {
		t.Errorf("%+v", d)
	}
}

func TestAnEndlessChainOfReferralsEnds(t *testing.T) {
	var asked []string
	d, err := walkReferrals(site{address: "192.0.2.0:8009"}, func(address, _ string) ([]nvme.Record, netip.AddrPort, error) {
		asked = append(asked, address)
		return []nvme.Record{referralTo(fmt.Sprint("192.0.2.", len(asked)))}, netip.AddrPort{}, nil
	})
	if err != nil || len(asked) != maxReferralHops+1 || len(d.Skipped) != 1 {
		t.Errorf("%v, asked %d, %v", err, len(asked), d.Skipped)
	}
}

func TestAWideNetOfReferralsIsBounded(t *testing.T) {
	n := 0
	d, err := walkReferrals(site{address: "192.0.2.1:8009"}, func(string, string) ([]nvme.Record, netip.AddrPort, error) {
		var out []nvme.Record
		for i := range 200 {
			out = append(out, referralTo(fmt.Sprintf("198.51.%d.%d", n, i)))
		}
		n++
		return out, netip.AddrPort{}, nil
	})
	if err != nil || n != maxDiscoveryControllers || len(d.Skipped) != maxSkipped {
		t.Errorf("%v, asked %d, skipped %d", err, n, len(d.Skipped))
	}
}

func TestEachReferralIsAskedByItsOwnName(t *testing.T) {
	own := referralTo("192.0.2.2")
	own.Subsystem = "nqn.2026-01.io.example:discovery"
	var nqns []string
	_, err := walkReferrals(site{address: "192.0.2.1:8009", nqn: nvme.DiscoveryNQN}, func(_, nqn string) ([]nvme.Record, netip.AddrPort, error) {
		nqns = append(nqns, nqn)
		return []nvme.Record{own}, netip.AddrPort{}, nil
	})
	if err != nil || !slices.Equal(nqns, []string{nvme.DiscoveryNQN, own.Subsystem}) {
		t.Errorf("%v, %v", nqns, err)
	}
}

// A portal given by name may be referred to by its address.
func TestTheFirstControllerIsKnownByItsAddress(t *testing.T) {
	asked := 0
	_, err := walkReferrals(site{address: "storage.example:8009"}, func(string, string) ([]nvme.Record, netip.AddrPort, error) {
		asked++
		return []nvme.Record{referralTo("192.0.2.1")}, netip.MustParseAddrPort("192.0.2.1:8009"), nil
	})
	if err != nil || asked != 1 {
		t.Errorf("asked %d times, %v", asked, err)
	}
}

// B-21: other transports, addresses and ports that are none.
func TestB21RecordsThatCannotBeUsedAreNamed(t *testing.T) {
	with := func(r nvme.Record, change func(*nvme.Record)) nvme.Record { change(&r); return r }
	good := subsystemAt("good", "192.0.2.1", "4420")
	for _, c := range []struct {
		want string
		r    nvme.Record
	}{
		{"not TCP", with(good, func(r *nvme.Record) { r.Transport = nvme.TransportRDMA })},
		{"type 254", with(good, func(r *nvme.Record) { r.Transport = nvme.TransportLocal })},
		{"no IP address", with(good, func(r *nvme.Record) { r.Address = "host.example" })},
		{"no IP address", with(good, func(r *nvme.Record) { r.Address = strings.Repeat("1", 256) })},
		{"family 2", with(good, func(r *nvme.Record) { r.Family = nvme.FamilyIPv6 })},
		{"family 1", with(good, func(r *nvme.Record) { r.Address = "2001:db8::1" })},
		{"family 0", with(good, func(r *nvme.Record) { r.Family = 0 })},
		{"not one of", with(good, func(r *nvme.Record) { r.Address = "0.0.0.0" })},
		{"not one of", subsystemAt("x", "::", "4420")},
		{"not one of a", subsystemAt("x", "ff02::1", "4420")},
		{"without a scope", subsystemAt("x", "fe80::1", "4420")},
		{`"none" is no port`, with(good, func(r *nvme.Record) { r.Service = "none" })},
		{`"0" is no port`, with(good, func(r *nvme.Record) { r.Service = "0" })},
		{`"" is no port`, with(good, func(r *nvme.Record) { r.Service = "" })},
		{`"65536" is no port`, with(good, func(r *nvme.Record) { r.Service = "65536" })},
		{`"44 20" is no port`, with(good, func(r *nvme.Record) { r.Service = "44 20" })},
		{`"-1" is no port`, with(good, func(r *nvme.Record) { r.Service = "-1" })},
		{"no NQN", with(good, func(r *nvme.Record) { r.Subsystem = "nqn.x y" })},
		{"type 9", with(good, func(r *nvme.Record) { r.Subtype = 9 })},
		{"without TLS", with(referralTo("192.0.2.7"), func(r *nvme.Record) { r.Requirements = nvme.SecureRequired })},
	} {
		d, _ := walkFrom(t, network{"192.0.2.1:8009": {c.r, good}}, "192.0.2.1:8009")
		if names(d) != "good 192.0.2.1:4420" || len(d.Skipped) != 1 || !strings.Contains(d.Skipped[0], c.want) {
			t.Errorf("%s: %s, %q", c.want, names(d), d.Skipped)
		}
	}
}

// B-21: the fields are padded with spaces, with NULs, or full.
func TestB21AddressesAreTrimmedOfSpacesAndNULs(t *testing.T) {
	b := logOf(1, subsystemAt("a", "192.0.2.1", "4420"), subsystemAt("b", "192.0.2.2", "4420"))
	nul := func(field []byte) {
		for i, c := range field {
			if c == ' ' {
				field[i] = 0
			}
		}
	}
	nul(b[1024+32 : 1024+64])
	nul(b[1024+512 : 1024+768])
	d, _ := walkFrom(t, network{"192.0.2.1:8009": nvme.ParseRecords(nil, b[1024:])}, "192.0.2.1:8009")
	if names(d) != "a 192.0.2.1:4420, b 192.0.2.2:4420" {
		t.Errorf("%s, %v", names(d), d.Skipped)
	}
}

func TestB21AScopeIsTheOneOfThisHost(t *testing.T) {
	for _, c := range []struct{ portal, address, want string }{
		{"[fe80::2%eth1]:8009", "fe80::1%eth0", "[fe80::1%eth1]:4420"},
		{"[fe80::2%eth1]:8009", "fe80::1", "[fe80::1%eth1]:4420"},
		{"192.0.2.1:8009", "fe80::1%eth0", "[fe80::1%eth0]:4420"},
		{"[fe80::2%eth1]:8009", "2001:db8::1", "[2001:db8::1]:4420"},
		{"192.0.2.1:8009", "2001:db8::1%eth0", "[2001:db8::1]:4420"},
		{"192.0.2.1:8009", "::ffff:192.0.2.3", "192.0.2.3:4420"},
	} {
		d, _ := walkFrom(t, network{c.portal: {subsystemAt("a", c.address, "4420")}}, c.portal)
		if got := names(d); got != "a "+c.want {
			t.Errorf("%s told by %s: %s, %v", c.address, c.portal, got, d.Skipped)
		}
	}
}

func TestAPortThatDemandsTLSIsMarked(t *testing.T) {
	tls := subsystemAt("a", "192.0.2.1", "4420")
	tls.Requirements, tls.Security = nvme.SecureRequired, nvme.SecurityTLS13
	open := subsystemAt("a", "192.0.2.2", "4420")
	open.Requirements = nvme.SecureNotRequired
	d, _ := walkFrom(t, network{"192.0.2.1:8009": {tls, open}}, "192.0.2.1:8009")
	if p := d.Subsystems[0].Portals; !p[0].TLS || p[1].TLS {
		t.Errorf("%+v", p)
	}
}

// FuzzDiscoveryWalk: whatever a controller says, the walk ends within its
// limits, and every address it returns can be dialled.
func FuzzDiscoveryWalk(f *testing.F) {
	f.Add(logOf(1, subsystemAt("a", "192.0.2.1", "4420"), referralTo("192.0.2.2")))
	f.Add(logOf(1, subsystemAt("a", "fe80::1%eth0", "4420"), referralTo("fe80::2")))
	f.Fuzz(func(t *testing.T, log []byte) {
		asked := 0
		d, err := walkReferrals(site{address: "[fe80::9%lo]:8009"}, func(string, string) ([]nvme.Record, netip.AddrPort, error) {
			asked++
			var reads []uint64
			records, err := readDiscoveryLog(readerOf(log, &reads, nil))
			return records, netip.AddrPort{}, err
		})
		if err != nil {
			return
		}
		if asked > maxDiscoveryControllers {
			t.Fatalf("asked %d", asked)
		}
		for _, s := range d.Subsystems {
			for _, p := range s.Portals {
				if a, err := netip.ParseAddrPort(p.Address); err != nil || a.Port() == 0 {
					t.Fatalf("%s: %v", p.Address, err)
				}
			}
		}
	})
}
