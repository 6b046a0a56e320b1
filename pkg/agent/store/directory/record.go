package directory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/durable"
)

// recordVersion is the format of a record. Version 1 is the first.
const recordVersion = 1

// record lies beside an object's bytes, and is the truth about it.
type record struct {
	Version int         `json:"version"`
	Name    string      `json:"name"`
	Phase   store.Phase `json:"phase"`
	// Size is the least that the file with the bytes has, once it is ready.
	Size     int64  `json:"sizeBytes"`
	Source   string `json:"source,omitempty"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// Preallocated: that blocks are taken says nothing about what was written.
	Preallocated bool   `json:"preallocated,omitempty"`
	Labels       labels `json:"labels"`
}

// labels are store.Labels as they are written down.
type labels struct {
	Tenant         string            `json:"tenant"`
	Name           string            `json:"name"`
	Identity       string            `json:"identity"`
	SourcePool     string            `json:"sourcePool,omitempty"`
	SourceObject   string            `json:"sourceObject,omitempty"`
	SourceSnapshot bool              `json:"sourceSnapshot,omitempty"`
	Created        int64             `json:"createdUnix"`
	Tunables       map[string]string `json:"tunables,omitempty"`
	Generation     int64             `json:"generation,omitempty"`
}

func written(l store.Labels) labels {
	return labels{Tenant: l.Tenant, Name: l.Name, Identity: l.Identity, SourcePool: l.Source.Pool, SourceObject: l.Source.Object,
		SourceSnapshot: l.SourceSnapshot, Created: l.Created.Unix(), Tunables: l.Tunables, Generation: l.Generation}
}

func (l labels) read() store.Labels {
	return store.Labels{Tenant: l.Tenant, Name: l.Name, Identity: l.Identity, Source: backend.ID{Pool: l.SourcePool, Object: l.SourceObject},
		SourceSnapshot: l.SourceSnapshot, Created: time.Unix(l.Created, 0).UTC(), Tunables: l.Tunables, Generation: l.Generation}
}

// decode reads a record strictly.
func decode(b []byte, name string) (record, error) {
	var r record
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return record{}, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return record{}, errors.New("something follows the record")
	}
	switch {
	case r.Version != recordVersion:
		return record{}, fmt.Errorf("version %d, this program reads %d", r.Version, recordVersion)
	case r.Name != name:
		return record{}, fmt.Errorf("it is that of object %.80q", r.Name)
	case !r.Phase.Valid():
		return record{}, fmt.Errorf("phase %.20q", string(r.Phase))
	case r.Size <= 0 || r.Size > maxObject || r.Size%step != 0:
		return record{}, fmt.Errorf("size of %d bytes", r.Size)
	}
	spec := store.Spec{Name: r.Name, Source: r.Source, Labels: r.Labels.read()}
	return r, spec.Check()
}

// read returns the record of an object, nil if there is none.
func (s *Store) read(name string) (*record, error) {
	path, err := s.path(name, recordSuffix)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0) //nolint:gosec // path checked the name
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxRecord+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(b) > maxRecord {
		return nil, fmt.Errorf("%s is larger than %d bytes: it is no record of this program", path, maxRecord)
	}
	r, err := decode(b, name)
	if err != nil {
		return nil, fmt.Errorf("record %s is damaged (%s): repair it, or move it and its %s file away", path, err.Error(), imageSuffix) // not the caller's ErrInvalid
	}
	return &r, nil
}

// ready is read for objects that are finished: backend.ErrNotFound for others.
func (s *Store) ready(name string) (*record, error) {
	r, err := s.read(name)
	if err != nil {
		return nil, err
	}
	if r == nil || r.Phase != store.Ready {
		return nil, fmt.Errorf("%w: object %s in %s", backend.ErrNotFound, name, s.dir)
	}
	return r, nil
}

// write replaces the record.
func (s *Store) write(r *record) error {
	path, err := s.path(r.Name, recordSuffix)
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return space(durable.Write(path, append(b, '\n')))
}

// space makes an error of a full disk recognizable.
func space(err error) error {
	switch {
	case errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("%w: %w", backend.ErrNoSpace, err)
	case errors.Is(err, unix.EFBIG):
		return fmt.Errorf("%w: %w", backend.ErrRange, err)
	}
	return err
}
