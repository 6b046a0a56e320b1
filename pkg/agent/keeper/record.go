package keeper

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/secret"
)

// recordVersion is the format of a volume's file in the journal, and of a fence
// mark's. Version 1 is the first.
const recordVersion = 1

// record is who has a volume, and who had it and is being revoked: one file of
// the journal. Values are never changed in place: a changed record is another.
type record struct {
	volume   backend.ID
	tenant   string
	identity string // of the volume, as of its creation
	// pubs are in the order of nodes, and all of one transport.
	pubs []publication
}

// publication is one node's access.
type publication struct {
	node      string
	base      string // the node's initiator name
	epoch     string // 32 hexadecimal digits
	transport backend.Transport
	readOnly  bool
	shared    bool
	revoking  bool
	auth      backend.Auth
}

// Format prints no secrets, which fmt would find in unexported fields (I10).
func (p publication) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "{%s %s %s read-only %t shared %t revoking %t}", p.node, p.transport, p.initiator(), p.readOnly, p.shared, p.revoking)
}

// Format prints no secrets (I10).
func (r record) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "{%s %s %s", r.volume, r.tenant, r.identity)
	for _, p := range r.pubs {
		_, _ = fmt.Fprint(f, " ", p)
	}
	_, _ = io.WriteString(f, "}")
}

// initiator is who the node is under this publication.
func (p publication) initiator() string { return p.base + ":" + p.epoch }

// hostID is its host identifier; only NVMe has one.
func (p publication) hostID() string {
	if p.transport != backend.NVMe {
		return ""
	}
	return p.epoch
}

// of is the publication of a node.
func (r record) of(node string) (publication, bool) {
	for _, p := range r.pubs {
		if p.node == node {
			return p, true
		}
	}
	return publication{}, false
}

// with is the record with p in the place of the node's publication.
func (r record) with(p publication) record {
	r.pubs = slices.DeleteFunc(slices.Clone(r.pubs), func(o publication) bool { return o.node == p.node })
	r.pubs = append(r.pubs, p)
	slices.SortFunc(r.pubs, func(a, b publication) int { return strings.Compare(a.node, b.node) })
	return r
}

// revoke is the record with a node's publication revoked, all for "".
func (r record) revoke(node string) (out record, changed bool) {
	r.pubs = slices.Clone(r.pubs)
	for i := range r.pubs {
		if (node == "" || r.pubs[i].node == node) && !r.pubs[i].revoking {
			r.pubs[i].revoking, changed = true, true
		}
	}
	return r, changed
}

// live is the record without what is being revoked.
func (r record) live() record {
	r.pubs = slices.DeleteFunc(slices.Clone(r.pubs), func(p publication) bool { return p.revoking })
	return r
}

// initiators are who its publications let in.
func (r record) initiators() (out []string) {
	for _, p := range r.pubs {
		out = append(out, p.initiator())
	}
	return out
}

// transport of its publications; "" if there are none.
func (r record) transport() backend.Transport {
	if len(r.pubs) == 0 {
		return ""
	}
	return r.pubs[0].transport
}

// The form on disk. Secrets are plain texts here and nowhere else (I10): the
// file is its owner's only.
type (
	recordFile struct {
		Version      int               `json:"version"`
		Volume       string            `json:"volume"`
		Tenant       string            `json:"tenant"`
		Identity     string            `json:"identity"`
		Publications []publicationFile `json:"publications"`
	}
	publicationFile struct {
		Node      string            `json:"node"`
		Initiator string            `json:"initiator"`
		Epoch     string            `json:"epoch"`
		Transport backend.Transport `json:"transport"`
		ReadOnly  bool              `json:"readOnly,omitempty"`
		Shared    bool              `json:"shared,omitempty"`
		Revoking  bool              `json:"revoking,omitempty"`
		CHAP      *chapFile         `json:"chap,omitempty"`
		DHCHAP    *dhchapFile       `json:"dhchap,omitempty"`
	}
	chapFile struct {
		User         string `json:"user"`
		Secret       string `json:"secret"`
		MutualUser   string `json:"mutualUser,omitempty"`
		MutualSecret string `json:"mutualSecret,omitempty"`
	}
	dhchapFile struct {
		Host       string `json:"host"`
		Controller string `json:"controller,omitempty"`
	}
)

func (r record) encode() ([]byte, error) {
	f := recordFile{Version: recordVersion, Volume: r.volume.String(), Tenant: r.tenant, Identity: r.identity}
	for _, p := range r.pubs {
		f.Publications = append(f.Publications, p.file())
	}
	return json.MarshalIndent(f, "", " ")
}

func (p publication) file() publicationFile {
	f := publicationFile{Node: p.node, Initiator: p.base, Epoch: p.epoch, Transport: p.transport,
		ReadOnly: p.readOnly, Shared: p.shared, Revoking: p.revoking}
	if c := p.auth.CHAP; c != (backend.CHAP{}) {
		f.CHAP = &chapFile{c.User, string(c.Secret), c.MutualUser, string(c.MutualSecret)}
	}
	if d := p.auth.DHCHAP; d != (backend.DHCHAP{}) {
		f.DHCHAP = &dhchapFile{string(d.Host), string(d.Controller)}
	}
	return f
}

// decodeRecord reads the file of a volume, strictly: what is not exactly a record
// of this volume is an error, which never quotes the content (I10).
func decodeRecord(b []byte, volume backend.ID) (record, error) {
	var f recordFile
	if err := decodeStrictly(b, &f); err != nil {
		return record{}, err
	}
	if f.Version != recordVersion {
		return record{}, fmt.Errorf("version %d, this program reads %d", f.Version, recordVersion)
	}
	if f.Volume != volume.String() {
		return record{}, errors.New("it is another volume's")
	}
	if !backend.ValidName(f.Tenant, backend.MaxObject) || !export.ValidIdentity(f.Identity) {
		return record{}, errors.New("no tenant, or no identity")
	}
	if n := len(f.Publications); n == 0 || n > maxPublications {
		return record{}, fmt.Errorf("%d publications, want 1..%d", n, maxPublications)
	}
	r := record{volume: volume, tenant: f.Tenant, identity: f.Identity}
	for i, pf := range f.Publications {
		p, err := pf.publication()
		if err != nil {
			return record{}, fmt.Errorf("publication %d: %w", i, err)
		}
		if i > 0 && (p.node <= r.pubs[i-1].node || p.transport != r.pubs[0].transport) {
			return record{}, fmt.Errorf("publication %d: nodes out of order, or two transports", i)
		}
		r.pubs = append(r.pubs, p)
	}
	return r, nil
}

func (f publicationFile) publication() (publication, error) {
	p := publication{node: f.Node, base: f.Initiator, epoch: f.Epoch, transport: f.Transport,
		readOnly: f.ReadOnly, shared: f.Shared, revoking: f.Revoking}
	if c := f.CHAP; c != nil {
		p.auth.CHAP = backend.CHAP{User: c.User, Secret: secret.Text(c.Secret), MutualUser: c.MutualUser, MutualSecret: secret.Text(c.MutualSecret)}
	}
	if d := f.DHCHAP; d != nil {
		p.auth.DHCHAP = backend.DHCHAP{Host: secret.Text(d.Host), Controller: secret.Text(d.Controller)}
	}
	if len(f.Epoch) != epochDigits || strings.Trim(f.Epoch, "0123456789abcdef") != "" {
		return p, errors.New("no epoch")
	}
	if err := backend.CheckNode(p.node); err != nil {
		return p, err
	}
	if err := backend.CheckInitiator(p.transport, p.base); err != nil {
		return p, err
	}
	return p, p.auth.Check(p.transport)
}

// fence is a node that is refused.
type fence struct{ tenant, node string }

type fenceFile struct {
	Version int    `json:"version"`
	Tenant  string `json:"tenant"`
	Node    string `json:"node"`
}

func (f fence) encode() ([]byte, error) {
	return json.MarshalIndent(fenceFile{Version: recordVersion, Tenant: f.tenant, Node: f.node}, "", " ")
}

func decodeFence(b []byte) (fence, error) {
	var f fenceFile
	if err := decodeStrictly(b, &f); err != nil {
		return fence{}, err
	}
	if f.Version != recordVersion {
		return fence{}, fmt.Errorf("version %d, this program reads %d", f.Version, recordVersion)
	}
	if !backend.ValidName(f.Tenant, backend.MaxObject) {
		return fence{}, errors.New("no tenant")
	}
	return fence{tenant: f.Tenant, node: f.Node}, backend.CheckNode(f.Node)
}

// decodeStrictly reads one JSON value without unknown fields, and nothing after it.
func decodeStrictly(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("no JSON of this form at byte %d", d.InputOffset())
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON")
	}
	return nil
}

// epochDigits of an epoch: 128 random bits.
const epochDigits = 32

// newRandom makes epochs and identities.
func newRandom(random io.Reader) (string, error) {
	b := make([]byte, epochDigits/2)
	if _, err := io.ReadFull(random, b); err != nil {
		return "", fmt.Errorf("random bytes: %w", err)
	}
	return hex.EncodeToString(b), nil
}
