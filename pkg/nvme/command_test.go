package nvme

import (
	"encoding/hex"
	"reflect"
	"strings"
	"testing"
)

func hexOf(b []byte) string { return hex.EncodeToString(b) }

func entry(c Command) []byte {
	b := make([]byte, CommandLen)
	c.Put(b)
	return b
}

// wire joins the parts of a golden entry, spaces left out, zeroes up to its length.
func wire(parts string) string {
	s := strings.ReplaceAll(parts, " ", "")
	return s + strings.Repeat("0", 2*CommandLen-len(s))
}

// What each line shows: opcode, flags, CID 3412; NSID; dwords 2-5; SGL; dword 10 and on.
const none16 = "00000000000000000000000000000000"

func TestCommandsLookAsOnTheWire(t *testing.T) {
	sgl := func(c Command, s SGL) Command { c.SGL = s; return c }
	for _, g := range []struct {
		name string
		c    Command
		want string
	}{
		{"Read", sgl(Read(5, 0x0102030405060708, 8, FUA), ByTransport(4096)),
			"02403412 05000000" + none16 + "0000000000000000 00100000 0000005a 08070605 04030201 07000040"},
		{"Write in capsule", sgl(Write(5, 1, 65536, 0), InCapsule(512)),
			"01403412 05000000" + none16 + "0000000000000000 00020000 00000001 01000000 00000000 ffff0000"},
		{"Write Zeroes", WriteZeroes(1, 9, 1, Deallocate|FUA),
			"08403412 01000000" + none16 + "0000000000000000 00000000 0000005a 09000000 00000000 00000042"},
		{"Flush", Flush(1), "00403412 01000000" + none16 + "0000000000000000 00000000 0000005a"},
		{"Dataset", sgl(Dataset(1, 256, DatasetDeallocate), InCapsule(4096)),
			"09403412 01000000" + none16 + "0000000000000000 00100000 00000001 ff000000 04000000"},
		{"Identify", Identify(CNSDescriptors, 7),
			"06403412 07000000" + none16 + "0000000000000000 00100000 0000005a 03000000"},
		{"Get Log", LogRequest{Page: LogANA, Specific: 1, Retain: true, Len: 0x40004, Offset: 0x100000008}.Command(),
			"02403412 00000000" + none16 + "0000000000000000 04000400 0000005a 0c810000 01000000 08000000 01000000"},
		{"Set Features", SetFeature(0, FeatureQueues, Queues(4)),
			"09403412 00000000" + none16 + "0000000000000000 00000000 0000005a 07000000 03000300"},
		{"Get Features", GetFeature(0, FeatureKeepAlive),
			"0a403412 00000000" + none16 + "0000000000000000 00000000 0000005a 0f000000"},
		{"Abort", Abort(3, 0x0102), "08403412 00000000" + none16 + "0000000000000000 00000000 0000005a 03000201"},
		{"Async Event", AsyncEvent(), "0c403412 00000000" + none16 + "0000000000000000 00000000 0000005a"},
		{"Keep Alive", KeepAlive(), "18403412 00000000" + none16 + "0000000000000000 00000000 0000005a"},
		{"Connect", ConnectCommand{QueueID: 2, SQSize: 127, Attributes: ConnectNoFlowControl, KeepAlive: 5000}.Command(),
			"7f403412 01000000" + none16 + "0000000000000000 00040000 00000001 00000200 7f000400 88130000"},
		{"Property Get", GetProperty(RegCAP), "7f403412 04000000" + none16 + "0000000000000000 00000000 0000005a 01000000 00000000"},
		{"Property Set", SetProperty(RegCC, 0x460001), "7f403412 00000000" + none16 + "0000000000000000 00000000 0000005a 00000000 14000000 01004600"},
		{"Auth Send", SendAuth(0x123), "7f403412 05000000" + none16 + "0000000000000000 23010000 0000005a 000101e9 23010000"},
		{"Auth Receive", ReceiveAuth(0x800), "7f403412 06000000" + none16 + "0000000000000000 00080000 0000005a 000101e9 00080000"},
		{"Disconnect", EndQueue(), "7f403412 08000000" + none16 + "0000000000000000 00000000 0000005a"},
		{"Register", ReserveCommand{Op: OpReserveRegister, Action: ActionReplace, Ignore: true, Persist: PersistOff}.Command(1),
			"0d403412 01000000" + none16 + "0000000000000000 00000000 0000005a 0a000080"},
		{"Acquire", ReserveCommand{Op: OpReserveAcquire, Action: ActionPreemptAbort, Type: WriteExclusiveRegistrantsOnly}.Command(1),
			"11403412 01000000" + none16 + "0000000000000000 00000000 0000005a 02030000"},
		{"Report", ReserveReport(1, 4096, true), "0e403412 01000000" + none16 + "0000000000000000 00100000 0000005a ff030000 01000000"},
	} {
		g.c.CID = 0x1234
		if got := hexOf(entry(g.c)); got != wire(g.want) {
			t.Errorf("%s:\n got %s\nwant %s", g.name, got, wire(g.want))
		}
		var back Command
		if err := back.Decode(entry(g.c)); err != nil || back != g.c || back.Check() != Success {
			t.Errorf("%s came back as %+v, %v, %v", g.name, back, err, back.Check())
		}
	}
}

func TestCompletionsLookAsOnTheWire(t *testing.T) {
	c := Completion{Result: 0x1122334455667788, SQHead: 9, CID: 0x1234, Status: ANAInaccessible.Final().After(2)}
	b := make([]byte, CompletionLen)
	c.Put(b)
	if want := "887766554433221109000000" + "3412" + "04a6"; hexOf(b) != want {
		t.Errorf("got %x, want %s", b, want)
	}
	var back Completion
	b[14] |= 1 // a phase tag of a controller that keeps one
	if err := back.Decode(b); err != nil || back != c {
		t.Errorf("%+v, %v", back, err)
	}
}

func TestACommandSaysItsRangeAndFlags(t *testing.T) {
	for _, blocks := range []uint32{1, 8, MaxBlocks} {
		c := WriteZeroes(1, 1<<63|5, blocks, FUA|Deallocate|LimitedRetry)
		if c.LBA() != 1<<63|5 || c.Blocks() != blocks || c.IOFlags() != FUA|Deallocate|LimitedRetry || c.Protection() != 0 {
			t.Errorf("%d blocks: %+v", blocks, c)
		}
	}
	if c := Write(1, 0, 1, Deallocate); c.IOFlags() != 0 {
		t.Error("a Write deallocates")
	}
	c := Read(1, 0, 1, 0)
	c.CDW12 |= 1 << 29
	if c.Protection() == 0 {
		t.Error("PRINFO is not seen")
	}
}

func TestDirectionIsThatOfTheOpcode(t *testing.T) {
	for _, c := range []struct {
		c    Command
		want Direction
	}{
		{Read(1, 0, 1, 0), ControllerToHost}, {Write(1, 0, 1, 0), HostToController}, {Flush(1), NoData},
		{Dataset(1, 1, 4), HostToController}, {WriteZeroes(1, 0, 1, 0), NoData}, {Identify(1, 0), ControllerToHost},
		{LogRequest{Len: 4}.Command(), ControllerToHost}, {ConnectCommand{}.Command(), HostToController},
		{SendAuth(4), HostToController}, {ReceiveAuth(4), ControllerToHost}, {GetProperty(RegVS), NoData}, {EndQueue(), NoData},
		{ReserveReport(1, 64, true), ControllerToHost}, {KeepAlive(), NoData},
	} {
		if c.c.Direction() != c.want {
			t.Errorf("%+v: %d, want %d", c.c, c.c.Direction(), c.want)
		}
	}
}

func TestCommandsThatFabricsForbidAreRefused(t *testing.T) {
	for _, c := range []struct {
		change func(*Command)
		want   Status
	}{
		{func(c *Command) { c.Flags = 0 }, InvalidField},         // PRPs
		{func(c *Command) { c.Flags |= 1 }, InvalidField},        // fused
		{func(c *Command) { c.SGL.Kind = 0 }, SGLTypeInvalid},    // an address
		{func(c *Command) { c.SGL.Kind = 0x40 }, SGLTypeInvalid}, // keyed, RDMA's
		{func(c *Command) { c.SGL = SGL{4, 8, SGLInCapsule} }, SGLOffsetInvalid},
	} {
		e := Flush(1)
		c.change(&e)
		if got := e.Check(); got != c.want.Final() {
			t.Errorf("%+v: %v, want %v", e, got, c.want)
		}
	}
}

func TestFabricsCommandsComeBack(t *testing.T) {
	in := ConnectCommand{QueueID: 65535, SQSize: 1023, Attributes: ConnectDeletable, KeepAlive: 1 << 31}
	e := in.Command()
	if got, st := ParseConnect(&e); got != in || st != Success {
		t.Errorf("%+v, %v", got, st)
	}
	e.CDW10 |= 1
	if _, st := ParseConnect(&e); st.Code() != IncompatibleFormat {
		t.Errorf("record format 1: %v", st)
	}
	for _, want := range []Property{{RegCC, 4, 0x460001}, {RegCAP, 8, 0x1122334455667788}} {
		e := SetProperty(want.Offset, want.Value)
		if got, st := ParseProperty(&e); got != want || st != Success {
			t.Errorf("%+v, %v, want %+v", got, st, want)
		}
		e = GetProperty(want.Offset)
		if got, _ := ParseProperty(&e); got != (Property{want.Offset, want.Size, 0}) {
			t.Errorf("get: %+v", got)
		}
	}
	e = GetProperty(RegCAP)
	e.CDW10 = 2
	if _, st := ParseProperty(&e); st.Code() != InvalidField {
		t.Errorf("a property of another size: %v", st)
	}
	e = SendAuth(77)
	if got := ParseAuth(&e); got != (Auth{AuthProtocol, AuthSpecific, 77}) {
		t.Errorf("%+v", got)
	}
}

func TestConnectDataComesBack(t *testing.T) {
	in := ConnectData{HostID: [16]byte{1, 15: 2}, ControllerID: AnyController,
		Subsystem: "nqn.2026-01.io.csi-mpath:v1", Host: "nqn.2014-08.org.nvmexpress:uuid:" + strings.Repeat("a", 100)}
	b, err := in.Append(nil)
	if err != nil || len(b) != ConnectDataLen {
		t.Fatal(len(b), err)
	}
	if hexOf(b[16:18]) != "ffff" || string(b[256:260]) != "nqn." || string(b[512:516]) != "nqn." {
		t.Errorf("% x", b[:520])
	}
	var got ConnectData
	if err := got.Decode(b); err != nil || got != in {
		t.Errorf("%+v, %v", got, err)
	}
	for name, change := range map[string]func([]byte) []byte{
		"short":          func(b []byte) []byte { return b[:1023] },
		"without an end": func(b []byte) []byte { copy(b[256:512], "nqn."+strings.Repeat("x", 252)); return b },
		"no NQN":         func(b []byte) []byte { b[512] = 'N'; return b },
		"control":        func(b []byte) []byte { b[258] = 7; return b },
		"empty":          func(b []byte) []byte { b[256] = 0; return b },
	} {
		b, _ := in.Append(nil)
		if got.Decode(change(b)) == nil {
			t.Errorf("%s: taken", name)
		}
	}
	in.Host = "nqn." + strings.Repeat("x", MaxNQN-3)
	if _, err := in.Append(nil); err == nil {
		t.Error("a name of 224 bytes was sent")
	}
}

func TestConnectResultsComeBack(t *testing.T) {
	r := ConnectResult{ControllerID: 0x1234, AuthRequired: true}
	if r.Value() != 0x21234 || ParseConnectResult(r.Value()) != r {
		t.Errorf("%x", r.Value())
	}
	r = ConnectResult{ControllerID: 1, SecureChan: true}
	if r.Value() != 0x40001 || ParseConnectResult(r.Value()) != r {
		t.Errorf("%x", r.Value())
	}
	f := ConnectRefusal{256, true}
	if f.Value() != 0x10100 || ParseConnectRefusal(f.Value()) != f || f.String() != "subsystem NQN (byte 256 of the Connect data)" {
		t.Errorf("%x %v", f.Value(), f)
	}
}

func TestRegistersComeBack(t *testing.T) {
	c := Caps{MaxEntries: 1024, Contiguous: true, Ready: 7500 * 1e6, MinPageShift: 12, MaxPageShift: 16, CommandSets: 1}
	if c.Value() != 0x00400020_0f0103ff || ParseCaps(c.Value()) != c {
		t.Errorf("CAP %x: %+v", c.Value(), ParseCaps(c.Value()))
	}
	cc := ControllerConfig{Enable: true, PageShift: 12, SQShift: 6, CQShift: 4}
	if cc.Value() != 0x460001 || ParseConfig(cc.Value()) != cc {
		t.Errorf("CC %x", cc.Value())
	}
	cc.Shutdown = ShutdownNormal
	if cc.Value() != 0x464001 {
		t.Errorf("CC %x", cc.Value())
	}
	for v, want := range map[uint32]ControllerState{1: {Ready: true}, 3: {Ready: true, Fatal: true},
		9: {Ready: true, Shutdown: ShutdownComplete}, 0x24: {Shutdown: ShutdownRunning, Paused: true}} {
		if got := ParseState(v); got != want || got.Value() != v {
			t.Errorf("CSTS %x: %+v", v, got)
		}
	}
	if Version(2, 1, 0) != 0x20100 {
		t.Error("version")
	}
}

func TestFeaturesAndEventsComeBack(t *testing.T) {
	e := SetFeature(0, FeatureAsyncConfig, AsyncNamespace|AsyncANA)
	if e.Feature() != FeatureAsyncConfig || e.CDW11 != 0x900 || e.FeatureSave() || e.FeatureSelect() != 0 {
		t.Errorf("%+v", e)
	}
	for n, want := range map[int]uint32{1: 0, 4: 0x30003, 1 << 20: 0xFFFEFFFE, 0: 0} {
		if Queues(n) != want {
			t.Errorf("%d queues: %x", n, Queues(n))
		}
	}
	if ParseQueues(0x00030007) != 4 || ParseQueues(0x00070003) != 4 || ParseQueues(0) != 1 {
		t.Error("a queue pair needs one of each")
	}
	for v, e := range map[uint64]Event{0x040002: NamespaceChanged, 0x0C0302: ANAChanged, 0x70F002: DiscoveryChanged, 0x800006: ReservationNoticed} {
		if e.Value() != v || ParseEvent(v) != e {
			t.Errorf("%x: %+v", v, ParseEvent(v))
		}
	}
	a := Abort(3, 9)
	if q, c := a.AbortTarget(); q != 3 || c != 9 || !Aborted(0) || Aborted(1) {
		t.Error("abort")
	}
}

func TestRangesComeBack(t *testing.T) {
	want := []Range{{LBA: 1 << 40, Blocks: 1<<32 - 1}, {Attributes: 3, LBA: 7, Blocks: 1}}
	b := want[1].Append(want[0].Append(nil))
	if got, err := ParseRanges(nil, b, 2); err != nil || !reflect.DeepEqual(got, want) {
		t.Error(got, err)
	}
	for _, n := range []int{0, 3, 257} {
		if _, err := ParseRanges(nil, b, n); err == nil {
			t.Errorf("%d ranges in %d bytes", n, len(b))
		}
	}
	c := Dataset(1, 256, 4)
	if c.Ranges() != 256 {
		t.Error(c.Ranges())
	}
}

func TestPutAndDecodeAllocateNothing(t *testing.T) {
	b := make([]byte, CommandLen)
	var c Command
	var q Completion
	if n := testing.AllocsPerRun(100, func() {
		e := Read(1, 2, 3, FUA)
		e.SGL = ByTransport(4096)
		e.Put(b)
		if c.Decode(b) != nil || q.Decode(b) != nil {
			t.Fatal("decode")
		}
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
