package archtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// room is one row of the table in ARCHITECTURE.md.
type room struct {
	may   []string // of ours; "*" is anything
	never []string // import paths or their prefixes, ours from the module's root
}

var (
	protocols = []string{"pkg/iscsi", "pkg/nvmetcp", "pkg/scsi", "pkg/nvme"}
	k8s       = []string{"k8s.io/", "sigs.k8s.io/"}
	grpc      = []string{"google.golang.org/grpc", "github.com/container-storage-interface/"}
	pure      = []string{"net", "os", "syscall", "golang.org/x/sys/", "k8s.io/"}
)

// rooms are the allowed imports of each package's product code. Arrows point
// down only. A package that is not here does not build into the house: add its
// row, and its sentence in ARCHITECTURE.md.
var rooms = map[string]room{
	"cmd/csi-mpath": {may: []string{"*"}},

	"pkg/driver":       {may: []string{"pkg/faultpoint", "pkg/strictyaml", "pkg/volume", "pkg/volume/attrs", "pkg/tunable", "pkg/backend", "pkg/durable", "pkg/secret", "pkg/health", "pkg/api/v1alpha1"}},
	"pkg/cluster":      {never: grpc},
	"pkg/mpv":          {may: []string{"pkg/api/v1alpha1", "pkg/health"}, never: grpc},
	"pkg/health":       {may: []string{"pkg/blk", "pkg/api/v1alpha1"}},
	"pkg/api/v1alpha1": {},
	"pkg/mount":        {may: []string{"pkg/program", "pkg/faultpoint"}, never: grpc},
	// The twin of pkg/mount, for tests of what stands above it.
	"pkg/mount/mounttest": {may: []string{"pkg/mount", "pkg/program", "pkg/faultpoint"}},
	"pkg/program":         {never: k8s},
	"pkg/volume":          {may: []string{"pkg/mount", "pkg/blk", "pkg/volume/attrs", "pkg/tunable", "pkg/backend", "pkg/secret", "pkg/faultpoint", "pkg/durable"}, never: grpc},
	"pkg/volume/attrs":    {may: []string{"pkg/backend", "pkg/tunable", "pkg/portal", "pkg/secret"}, never: []string{"os", "syscall", "golang.org/x/sys/", "k8s.io/"}},
	"pkg/tunable":         {may: []string{"pkg/pathsel"}, never: pure},
	"pkg/portal":          {never: []string{"os", "syscall", "golang.org/x/sys/", "k8s.io/"}},

	"pkg/attach": {may: []string{"pkg/volume", "pkg/volume/attrs", "pkg/tunable", "pkg/backend", "pkg/secret", "pkg/device", "pkg/datapath", "pkg/nbd",
		"pkg/nbd/kernel", "pkg/iscsi", "pkg/iscsi/auth", "pkg/nvmetcp", "pkg/nvmetcp/auth", "pkg/scsi", "pkg/durable", "pkg/program"}, never: grpc},
	// A node for tests: real devices, file systems in memory.
	"pkg/attach/attachtest": {may: []string{"pkg/attach", "pkg/volume", "pkg/mount", "pkg/mount/mounttest", "pkg/nbd/nbdtest", "pkg/nbd/proto"}},
	"pkg/supervise":         {never: k8s},
	"pkg/device": {may: []string{"pkg/datapath", "pkg/pathsel", "pkg/iscsi", "pkg/nvmetcp", "pkg/nbd", "pkg/nbd/kernel",
		"pkg/fuseblk", "pkg/blk", "pkg/scsi", "pkg/nvme", "pkg/iscsi/auth", "pkg/nvmetcp/auth", "pkg/poll", "pkg/durable", "pkg/portal", "pkg/tunable"}, never: grpc},
	"pkg/nbd":        {may: []string{"pkg/blk", "pkg/bufpool", "pkg/mpsc", "pkg/poll", "pkg/nbd/proto"}},
	"pkg/nbd/proto":  {may: []string{"pkg/blk"}, never: pure},
	"pkg/nbd/kernel": {may: []string{"pkg/blk", "pkg/nbd", "pkg/nbd/proto"}},
	// The servers and the client of nbd's own tests and of the benchmarks.
	"pkg/nbd/nbdtest": {may: []string{"pkg/blk", "pkg/nbd", "pkg/nbd/proto"}},
	"pkg/fuseblk":     {may: []string{"pkg/blk", "pkg/nbd"}, never: k8s},

	"pkg/datapath": {may: []string{"pkg/blk", "pkg/pathsel", "pkg/merge", "pkg/tagset", "pkg/bufpool",
		"pkg/poll", "pkg/mpsc"}, never: slices.Concat([]string{"net"}, protocols, k8s)},
	"pkg/pathsel": {may: []string{"pkg/blk"}, never: []string{"time", "net", "k8s.io/"}},
	"pkg/merge":   {may: []string{"pkg/blk", "pkg/mpsc"}, never: []string{"net", "k8s.io/"}},
	"pkg/tagset":  {never: pure},
	"pkg/bufpool": {never: []string{"net", "k8s.io/"}},
	"pkg/mpsc":    {never: pure},
	"pkg/poll":    {never: k8s},
	"pkg/blk":     {never: slices.Concat(pure, []string{"time"})},

	"pkg/scsi": {may: []string{"pkg/blk"}, never: pure},
	"pkg/nvme": {may: []string{"pkg/blk"}, never: pure},

	"pkg/wire": {may: []string{"pkg/blk", "pkg/tagset", "pkg/bufpool", "pkg/poll", "pkg/mpsc"}, never: k8s},
	"pkg/iscsi": {may: []string{"pkg/scsi", "pkg/blk", "pkg/poll", "pkg/mpsc", "pkg/wire",
		"pkg/iscsi/pdu", "pkg/iscsi/auth"}},
	"pkg/iscsi/pdu":  {never: pure},
	"pkg/iscsi/auth": {may: []string{"pkg/iscsi/pdu", "pkg/secret"}, never: pure},
	"pkg/nvmetcp": {may: []string{"pkg/nvme", "pkg/blk", "pkg/poll", "pkg/wire",
		"pkg/nvmetcp/pdu", "pkg/nvmetcp/auth"}},
	"pkg/nvmetcp/pdu":  {never: pure},
	"pkg/nvmetcp/auth": {may: []string{"pkg/secret"}, never: pure},
	"pkg/secret":       {never: pure},

	"pkg/backend":             {may: []string{"pkg/secret"}, never: slices.Concat(k8s, grpc)},
	"pkg/backend/contract":    {may: []string{"pkg/backend", "pkg/backend/memory", "pkg/faultpoint", "pkg/secret"}},
	"pkg/backend/memory":      {may: []string{"pkg/backend"}},
	"pkg/backend/static":      {may: []string{"pkg/backend"}},
	"pkg/backend/agentclient": {may: []string{"pkg/backend", "pkg/agent/agentpb", "pkg/agent/pki", "pkg/secret"}},

	"pkg/agent":         {may: []string{"pkg/backend", "pkg/agent/agentpb", "pkg/agent/pki", "pkg/agent/keeper", "pkg/agent/store", "pkg/secret"}},
	"pkg/agent/agentpb": {may: []string{"pkg/backend", "pkg/secret"}},
	// Writes the code of agentpb.
	"pkg/agent/agentpb/protogen": {},
	"pkg/agent/config":           {may: []string{"pkg/backend", "pkg/agent/export", "pkg/agent/store", "pkg/strictyaml"}, never: []string{"os", "syscall", "golang.org/x/sys/", "k8s.io/"}},
	"pkg/agent/demo":             {may: []string{"pkg/agent/config", "pkg/agent/pki", "pkg/durable"}},
	"pkg/agent/pki":              {may: []string{"pkg/backend", "pkg/durable"}, never: k8s},
	"pkg/agent/keeper": {may: []string{"pkg/backend", "pkg/agent/store", "pkg/agent/export", "pkg/faultpoint", "pkg/secret", "pkg/durable"},
		never: slices.Concat(k8s, grpc)},
	"pkg/agent/store":           {may: []string{"pkg/backend"}},
	"pkg/agent/store/directory": {may: []string{"pkg/agent/store", "pkg/backend", "pkg/faultpoint", "pkg/durable"}, never: k8s},
	"pkg/agent/store/lvmthin":   {may: []string{"pkg/agent/store", "pkg/backend", "pkg/faultpoint", "pkg/durable"}, never: k8s},
	"pkg/agent/store/storetest": {may: []string{"pkg/agent/store", "pkg/backend", "pkg/faultpoint"}},
	"pkg/agent/store/memory":    {may: []string{"pkg/agent/store", "pkg/backend"}},
	"pkg/agent/export":          {may: []string{"pkg/backend", "pkg/agent/store"}},
	"pkg/agent/export/embedded": {may: []string{"pkg/agent/export", "pkg/agent/store", "pkg/backend", "pkg/faultpoint", "pkg/secret",
		"pkg/target", "pkg/target/serve", "pkg/target/subsystem", "pkg/scsi", "pkg/nvme", "pkg/iscsi/auth", "pkg/nvmetcp/auth"}, never: k8s},
	"pkg/agent/export/configfs": {may: []string{"pkg/backend"}, never: k8s},
	"pkg/agent/export/loop":     {may: []string{"pkg/backend"}, never: k8s},
	// The twins of both for tests.
	"pkg/agent/export/configfs/configfstest": {may: []string{"pkg/agent/export", "pkg/agent/export/configfs", "pkg/agent/export/loop/looptest", "pkg/agent/store", "pkg/backend"}},
	"pkg/agent/export/loop/looptest":         {},
	"pkg/agent/export/lio": {may: []string{"pkg/agent/export", "pkg/agent/export/configfs", "pkg/agent/export/loop", "pkg/agent/store", "pkg/backend",
		"pkg/faultpoint", "pkg/secret"}, never: k8s},
	"pkg/agent/export/nvmet": {may: []string{"pkg/agent/export", "pkg/agent/export/configfs", "pkg/agent/export/loop", "pkg/agent/store", "pkg/backend",
		"pkg/faultpoint", "pkg/secret"}, never: k8s},
	"pkg/faultpoint": {never: k8s},
	"pkg/durable":    {may: []string{"pkg/faultpoint"}, never: k8s},

	"pkg/target":       {may: []string{"pkg/scsi", "pkg/iscsi/pdu", "pkg/iscsi/auth", "pkg/blk", "pkg/target/serve"}},
	"pkg/target/serve": {may: []string{"pkg/poll"}, never: slices.Concat(protocols, k8s)},
	"pkg/target/subsystem": {may: []string{"pkg/nvme", "pkg/nvmetcp/pdu", "pkg/nvmetcp/auth", "pkg/target", "pkg/target/serve"},
		never: k8s},
	"pkg/target/config": {may: []string{"pkg/scsi", "pkg/nvme", "pkg/iscsi/pdu", "pkg/strictyaml"}, never: []string{"os", "syscall", "golang.org/x/sys/", "k8s.io/"}},
	"pkg/target/estate": {may: []string{"pkg/target", "pkg/target/serve", "pkg/target/subsystem", "pkg/target/config", "pkg/iscsi/auth",
		"pkg/nvmetcp/auth", "pkg/scsi", "pkg/nvme"}, never: k8s},

	"pkg/strictyaml": {never: []string{"os", "syscall", "golang.org/x/sys/", "k8s.io/"}},

	"pkg/bench": {may: []string{"pkg/device", "pkg/datapath", "pkg/pathsel", "pkg/merge", "pkg/tagset",
		"pkg/bufpool", "pkg/mpsc", "pkg/poll", "pkg/blk", "pkg/iscsi", "pkg/nvmetcp", "pkg/nbd", "pkg/nbd/nbdtest", "pkg/target"}},
	"pkg/sim":      {may: []string{"*"}},
	"pkg/archtest": {},
}

// importFindings checks one product file against its room.
func importFindings(s *source) []string {
	if s.isTest() || strings.HasPrefix(s.path, "test/") {
		return nil
	}
	r, known := rooms[s.pkg()]
	if !known {
		return []string{fmt.Sprintf("%s: package %s has no row in pkg/archtest and ARCHITECTURE.md: add it", s.path, s.pkg())}
	}
	var out []string
	for _, path := range s.imports() {
		ours, isOurs := strings.CutPrefix(path, module+"/")
		if isOurs && !allowed(s.pkg(), r, ours) {
			out = append(out, fmt.Sprintf("%s: %s may not import %s (allowed: %v)", s.path, s.pkg(), ours, r.may))
		}
		if strings.HasPrefix(path, "gonum.org/") && s.pkg() != "pkg/bench" {
			out = append(out, fmt.Sprintf("%s: only pkg/bench may import %s: the node draws nothing", s.path, path))
		}
		if !isOurs {
			ours = path
		}
		for _, n := range r.never {
			if ours == n || strings.HasPrefix(ours, strings.TrimSuffix(n, "/")+"/") {
				out = append(out, fmt.Sprintf("%s: %s must never import %s", s.path, s.pkg(), ours))
			}
		}
	}
	return out
}

// allowed: the simulator, the test packages and what is under test/ are no part
// of the product; "*" does not mean them.
func allowed(from string, r room, ours string) bool {
	if ours == "pkg/sim" || strings.HasPrefix(ours, "test/") || strings.HasSuffix(ours, "test") {
		return from == "pkg/sim" || slices.Contains(r.may, ours)
	}
	return slices.Contains(r.may, ours) || slices.Contains(r.may, "*")
}

func TestPackagesImportOnlyWhatTheirRoomAllows(t *testing.T) {
	checkAll(t, importFindings)
}

func TestEveryAllowedImportHasARowItself(t *testing.T) {
	for name, r := range rooms {
		for _, m := range r.may {
			if _, ok := rooms[m]; !ok && m != "*" {
				t.Errorf("%s may import %s, which has no row", name, m)
			}
		}
	}
}

func TestTheImportRuleBites(t *testing.T) {
	for _, c := range []struct{ file, path, want string }{
		{"pkg/datapath/x.go", "net", "must never import net"},
		{"pkg/datapath/x.go", "net/netip", "must never import net/netip"},
		{"pkg/datapath/x.go", module + "/pkg/iscsi", "may not import pkg/iscsi"},
		{"pkg/pathsel/x.go", "time", "must never import time"},
		{"pkg/poll/x.go", module + "/pkg/blk", "may not import pkg/blk"},
		{"pkg/iscsi/x.go", module + "/pkg/datapath", "may not import pkg/datapath"},
		{"cmd/csi-mpath/x.go", module + "/pkg/sim", "may not import pkg/sim"},
		{"cmd/csi-mpath/x.go", module + "/pkg/nbd/nbdtest", "may not import pkg/nbd/nbdtest"},
		{"pkg/newroom/x.go", "fmt", "has no row"},
		{"pkg/device/x.go", "gonum.org/v1/plot", "only pkg/bench may import"},
	} {
		got := importFindings(mustParse(t, c.file, "package x\nimport _ \""+c.path+"\"\n"))
		if len(got) == 0 || !strings.Contains(got[0], c.want) {
			t.Errorf("%s importing %s: got %v, want %q", c.file, c.path, got, c.want)
		}
	}
}
