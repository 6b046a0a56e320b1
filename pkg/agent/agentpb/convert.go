package agentpb

import (
	"fmt"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/secret"
)

// Known refuses a message with fields that this program does not know: it could
// not do what they ask for.
func Known(m proto.Message) error { return known(m.ProtoReflect()) }

func known(m protoreflect.Message) error {
	if len(m.GetUnknown()) > 0 {
		return fmt.Errorf("%w: %s has fields that this version of the agent does not know: upgrade it", backend.ErrUnsupported, m.Descriptor().Name())
	}
	var err error
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if f.Kind() == protoreflect.MessageKind && !f.IsMap() && !f.IsList() {
			err = known(v.Message())
		}
		return err == nil
	})
	return err
}

// FromID is nil for the zero ID.
func FromID(id backend.ID) *ID {
	if id.IsZero() {
		return nil
	}
	return &ID{Pool: id.Pool, Object: id.Object}
}

// Backend is the zero ID for nil; it is not checked.
func (m *ID) Backend() backend.ID { return backend.ID{Pool: m.GetPool(), Object: m.GetObject()} }

// required is an ID that must name something.
func (m *ID) required() (backend.ID, error) {
	id := m.Backend()
	return id, id.Check()
}

// optional is an ID that may be none.
func (m *ID) optional() (backend.ID, error) {
	if id := m.Backend(); !id.IsZero() {
		return id, id.Check()
	}
	return backend.ID{}, nil
}

// FromTime is nil for the zero time.
func FromTime(t time.Time) *Time {
	if t.IsZero() {
		return nil
	}
	return &Time{Seconds: t.Unix(), Nanos: int32(t.Nanosecond())} //nolint:gosec // below 1e9
}

// Backend is the zero time for nil, and otherwise in UTC.
func (m *Time) Backend() time.Time {
	if m == nil {
		return time.Time{}
	}
	return time.Unix(m.Seconds, int64(m.Nanos)).UTC()
}

// check refuses what is no moment between the years 1 and 9999.
func (m *Time) check() error {
	const first, last = -62135596800, 253402300799
	if m != nil && (m.Seconds < first || m.Seconds > last || m.Nanos < 0 || m.Nanos > 999999999) {
		return fmt.Errorf("%w: time %d.%09d", backend.ErrInvalid, m.Seconds, m.Nanos)
	}
	return nil
}

// FromSize converts a size.
func FromSize(s backend.Size) *Size { return &Size{Required: s.Required, Limit: s.Limit} }

// Backend converts a size.
func (m *Size) Backend() backend.Size {
	return backend.Size{Required: m.GetRequired(), Limit: m.GetLimit()}
}

// FromPage converts what part of a list is wanted. A token that is no UTF-8 was
// never given.
func FromPage(p backend.Page) (*Page, error) {
	if !utf8.ValidString(p.Token) {
		return nil, fmt.Errorf("%w: not UTF-8", backend.ErrToken)
	}
	return &Page{Token: p.Token, Max: int64(p.Max)}, nil
}

// Backend converts what part of a list is wanted; beyond the bound is the bound.
func (m *Page) Backend() backend.Page {
	return backend.Page{Token: m.GetToken(), Max: int(min(m.GetMax(), backend.MaxEntries))}
}

// FromSource is nil for no source.
func FromSource(s backend.Source) *Source {
	if s.IsZero() {
		return nil
	}
	return &Source{Volume: FromID(s.Volume), Snapshot: FromID(s.Snapshot)}
}

// Backend converts a source; it is not checked.
func (m *Source) Backend() backend.Source {
	return backend.Source{Volume: m.GetVolume().Backend(), Snapshot: m.GetSnapshot().Backend()}
}

var (
	transports = twoWays(map[backend.Transport]Transport{
		"":            Transport_TRANSPORT_UNSPECIFIED,
		backend.ISCSI: Transport_TRANSPORT_ISCSI,
		backend.NVMe:  Transport_TRANSPORT_NVME_TCP,
	})
	contents = twoWays(map[backend.Content]Content{
		"":                     Content_CONTENT_UNSPECIFIED,
		backend.ContentUnknown: Content_CONTENT_UNKNOWN,
		backend.ContentBlank:   Content_CONTENT_BLANK,
		backend.ContentWritten: Content_CONTENT_WRITTEN,
		backend.ContentCopy:    Content_CONTENT_COPY,
	})
)

// words is an enumeration in both of its forms.
type words[G, P comparable] struct {
	to   map[G]P
	from map[P]G
}

func twoWays[G, P comparable](to map[G]P) words[G, P] {
	w := words[G, P]{to: to, from: map[P]G{}}
	for g, p := range to {
		w.from[p] = g
	}
	return w
}

// backend is the word for a number, which must be one that is known.
func (w words[G, P]) backend(p P) (G, error) {
	g, ok := w.from[p]
	if !ok {
		return g, fmt.Errorf("%w: %T %v", backend.ErrInvalid, p, p)
	}
	return g, nil
}

// FromAuth is nil without secrets.
func FromAuth(a backend.Auth) *Auth {
	if a == (backend.Auth{}) {
		return nil
	}
	m := &Auth{}
	if c := a.CHAP; c != (backend.CHAP{}) {
		m.Chap = &Chap{User: c.User, Secret: string(c.Secret), MutualUser: c.MutualUser, MutualSecret: string(c.MutualSecret)}
	}
	if d := a.DHCHAP; d != (backend.DHCHAP{}) {
		m.Dhchap = &Dhchap{Host: string(d.Host), Controller: string(d.Controller)}
	}
	return m
}

// Backend converts secrets.
func (m *Auth) Backend() backend.Auth {
	c, d := m.GetChap(), m.GetDhchap()
	return backend.Auth{
		CHAP: backend.CHAP{User: c.GetUser(), Secret: secret.Text(c.GetSecret()), MutualUser: c.GetMutualUser(),
			MutualSecret: secret.Text(c.GetMutualSecret())},
		DHCHAP: backend.DHCHAP{Host: secret.Text(d.GetHost()), Controller: secret.Text(d.GetController())},
	}
}
