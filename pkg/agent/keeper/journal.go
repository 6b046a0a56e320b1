package keeper

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/durable"
)

// journal is what is written down about exports: a file for each volume that is
// published, and one for each fenced node. It is the truth about both: what is in
// memory is what is in the files, which nobody else writes.
//
// A record is changed by whoever holds the volume's lock; mu guards the maps, and
// is never held during I/O.
type journal struct {
	volumes, nodes string // directories

	mu      sync.Mutex
	records map[backend.ID]record
	// damaged are the volumes whose file cannot be read: each verb about one is
	// refused. strays are files that are not even named like a record.
	damaged map[backend.ID]error
	strays  []error
	// fences and damagedFences are by the name of the file.
	fences        map[string]fence
	damagedFences map[string]error
	// claims are the initiators' base names in use: machines that were cloned must
	// not be taken for each other.
	claims map[string]claim
}

type claim struct {
	by fence // the tenant and node
	n  int   // publications
}

// suffix of all files of the journal.
const suffix = ".json"

// openJournal reads the journal. Files that cannot be read are no error of it.
func openJournal(dir string) (*journal, error) {
	j := &journal{volumes: filepath.Join(dir, "volumes"), nodes: filepath.Join(dir, "fences"),
		records: map[backend.ID]record{}, damaged: map[backend.ID]error{}, fences: map[string]fence{},
		damagedFences: map[string]error{}, claims: map[string]claim{}}
	for _, d := range []struct {
		path string
		read func(path, name string)
	}{{j.volumes, j.readRecord}, {j.nodes, j.readFence}} {
		if err := readDir(d.path, d.read); err != nil {
			return nil, err
		}
	}
	return j, nil
}

// readDir makes a directory if there is none, removes what interrupted writes
// left, and reads each file.
func readDir(dir string, read func(path, name string)) error {
	if err := durable.Own(dir); err != nil {
		return err
	}
	if err := durable.Sweep(dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		read(filepath.Join(dir, e.Name()), strings.TrimSuffix(e.Name(), suffix))
	}
	return nil
}

func (j *journal) readRecord(path, name string) {
	id, err := backend.ParseID(name)
	if err != nil || !strings.HasSuffix(path, suffix) {
		j.strays = append(j.strays, fmt.Errorf("%s is no file of the journal: move it away", path))
		return
	}
	b, err := durable.Read(path, maxFile)
	var r record
	if err == nil {
		r, err = decodeRecord(b, id)
	}
	if err != nil {
		j.damaged[id] = fmt.Errorf("%w: volume %s: its record %s cannot be read (%w): put it right and restart the agent, or remove it once no node has the volume",
			backend.ErrUnavailable, id, path, err)
		return
	}
	j.set(id, r)
}

func (j *journal) readFence(path, name string) {
	b, err := durable.Read(path, maxFile)
	var f fence
	if err == nil {
		f, err = decodeFence(b)
	}
	if err == nil && f.file() != name {
		err = errors.New("it is another node's")
	}
	if err != nil {
		j.damagedFences[name] = fmt.Errorf("%w: the fence mark %s cannot be read (%w): unfence its node, or remove the file and restart the agent",
			backend.ErrUnavailable, path, err)
		return
	}
	j.fences[name] = f
}

// file is the name of a fence mark's file, without the suffix: nodes' names are
// too long for one.
func (f fence) file() string {
	h := sha256.Sum256([]byte(f.tenant + "\x00" + f.node))
	return hex.EncodeToString(h[:])
}

// set replaces a record in memory, and keeps the claims of its publications; mu
// is held.
func (j *journal) set(id backend.ID, r record) {
	for _, p := range j.records[id].pubs {
		c := j.claims[p.base]
		if c.n--; c.n <= 0 {
			delete(j.claims, p.base)
			continue
		}
		j.claims[p.base] = c
	}
	if len(r.pubs) == 0 {
		delete(j.records, id)
		return
	}
	j.records[id] = r
	for _, p := range r.pubs {
		c := j.claims[p.base]
		j.claims[p.base] = claim{by: fence{r.tenant, p.node}, n: c.n + 1}
	}
}

// get is a volume's record; one without publications if there is none.
func (j *journal) get(id backend.ID) (record, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.damaged[id]; err != nil {
		return record{}, err
	}
	r := j.records[id]
	r.volume = id
	return r, nil
}

// all are the records in the order of IDs.
func (j *journal) all() []record {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := make([]record, 0, len(j.records))
	for _, r := range j.records {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b record) int {
		return cmp.Or(strings.Compare(a.volume.Pool, b.volume.Pool), strings.Compare(a.volume.Object, b.volume.Object))
	})
	return out
}

// byRevocation are all records, apart those of which somebody is being revoked.
func (j *journal) byRevocation() (whole, revoking []record) {
	for _, r := range j.all() {
		if len(r.live().pubs) == len(r.pubs) {
			whole = append(whole, r)
		} else {
			revoking = append(revoking, r)
		}
	}
	return whole, revoking
}

// write makes a record durable, then what the memory has. A record without
// publications is no file.
func (j *journal) write(r record) error {
	if err := j.save(r); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.set(r.volume, r)
	return nil
}

// mark is write for a revocation that begins. A file that cannot be written, on a
// full disk, keeps nobody in: what was revoked is durable when it is forgotten, and
// until then nobody was told that it is.
func (j *journal) mark(r record, log *slog.Logger) {
	if err := j.save(r); err != nil {
		log.Warn("a revocation is not written down, and goes on", "volume", r.volume.String(), "error", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.set(r.volume, r)
}

// save writes the file only.
func (j *journal) save(r record) error {
	path := filepath.Join(j.volumes, r.volume.String()+suffix)
	if len(r.pubs) == 0 {
		return durable.Remove(path)
	}
	b, err := r.encode()
	if err != nil {
		return err
	}
	if len(b) > maxFile { // it could not be read again
		return fmt.Errorf("%w: the record of volume %s would have %d bytes, at most %d", backend.ErrNoSpace, r.volume, len(b), maxFile)
	}
	return durable.Write(path, b)
}

// admit is write for a publication of this node. It is in memory first: a fence
// that is set meanwhile finds it there, or it finds the fence.
func (j *journal) admit(old, next record, p publication) error {
	if err := j.claim(next, p); err != nil {
		return err
	}
	err := j.save(next)
	if err == nil {
		return nil
	}
	_ = j.save(old) // the file may be either: nothing has happened yet, so try for the old one
	j.mu.Lock()
	defer j.mu.Unlock()
	j.set(old.volume, old)
	return err
}

func (j *journal) claim(next record, p publication) error {
	by := fence{next.tenant, p.node}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.fenced(by); err != nil {
		return err
	}
	if c, taken := j.claims[p.base]; taken && c.by != by {
		whose := "node " + c.by.node
		if c.by.tenant != by.tenant {
			whose = "a node of another cluster"
		}
		return fmt.Errorf("%w: initiator name %s of node %s is that of %s, too: machines that were cloned need names of their own", backend.ErrConflict, p.base, p.node, whose)
	}
	j.set(next.volume, next)
	return nil
}

// fenced is ErrFenced if the node is; mu is held.
func (j *journal) fenced(f fence) error {
	if _, marked := j.fences[f.file()]; marked {
		return fmt.Errorf("%w: node %s: unfence it once it is known to be well", backend.ErrFenced, f.node)
	}
	return j.damagedFences[f.file()]
}

func (j *journal) checkFence(f fence) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.fenced(f)
}

// fence marks a node: from when it is called, and durably when it returns.
func (j *journal) fence(f fence) error {
	j.mu.Lock()
	_, had := j.fences[f.file()]
	j.fences[f.file()] = f
	j.mu.Unlock()
	if had {
		return nil
	}
	b, err := f.encode()
	if err == nil {
		err = durable.Write(filepath.Join(j.nodes, f.file()+suffix), b)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil {
		delete(j.fences, f.file())
		return err
	}
	delete(j.damagedFences, f.file())
	return nil
}

// unfence lifts a mark.
func (j *journal) unfence(f fence) error {
	if err := durable.Remove(filepath.Join(j.nodes, f.file()+suffix)); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.fences, f.file())
	delete(j.damagedFences, f.file())
	return nil
}

// fencedNodes lists the marked nodes of a tenant, sorted.
func (j *journal) fencedNodes(tenant string) ([]string, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, err := range j.damagedFences {
		return nil, err
	}
	nodes := []string{}
	for _, f := range j.fences {
		if f.tenant == tenant {
			nodes = append(nodes, f.node)
		}
	}
	slices.Sort(nodes)
	return nodes, nil
}

// unreadable are the errors of all files that cannot be read.
func (j *journal) unreadable() []error {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := slices.Clone(j.strays)
	for _, err := range j.damaged {
		out = append(out, err)
	}
	for _, err := range j.damagedFences {
		out = append(out, err)
	}
	return out
}

// damagedRecords are the errors of the records that cannot be read.
func (j *journal) damagedRecords() map[backend.ID]error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.damaged)
}

// damagedVolumes are those whose record cannot be read.
func (j *journal) damagedVolumes() []backend.ID {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Collect(maps.Keys(j.damaged))
}
