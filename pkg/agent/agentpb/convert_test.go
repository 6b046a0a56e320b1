package agentpb

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// fill gives every field of v a value that no other has, and that passes checks.
func fill(v reflect.Value, n *int64) {
	*n++
	switch x := v.Addr().Interface().(type) {
	case *backend.Transport:
		*x = backend.NVMe
	case *backend.Content:
		*x = backend.ContentCopy
	case *time.Time:
		*x = time.Unix(*n, *n).UTC()
	case *backend.Portal:
		*x = backend.Portal{Address: fmt.Sprintf("192.0.2.%d:3260", *n%256), Group: uint16(*n)}
	case *int64:
		*x = *n
	case *int:
		*x = int(*n)
	case *uint32:
		*x = uint32(*n)
	case *bool:
		*x = true
	default:
		fillKind(v, n)
	}
}

func fillKind(v reflect.Value, n *int64) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("nqn.%d", *n))
		if v.Type() == reflect.TypeFor[string]() {
			v.SetString(fmt.Sprintf("x%d", *n))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, n)
		fill(value, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	default:
		panic("no value for " + v.Type().String())
	}
}

// trip sends a value there and back.
func trip[T any, M any, P interface {
	*M
	proto.Message
}](t *testing.T, to func(T) P, back func(P) (T, error), fix func(*T)) {
	t.Helper()
	var v T
	n := int64(0)
	fill(reflect.ValueOf(&v).Elem(), &n)
	if fix != nil {
		fix(&v)
	}
	b, err := proto.Marshal(to(v))
	if err != nil {
		t.Fatal(err)
	}
	m := P(new(M))
	if err := proto.Unmarshal(b, m); err != nil {
		t.Fatal(err)
	}
	for i := range m.ProtoReflect().Descriptor().Fields().Len() {
		if f := m.ProtoReflect().Descriptor().Fields().Get(i); !m.ProtoReflect().Has(f) {
			t.Errorf("%T: field %s was not filled", m, f.Name())
		}
	}
	got, err := back(m)
	if err != nil || !reflect.DeepEqual(got, v) {
		t.Errorf("%T: %v\nsent %+v\n got %+v", v, err, v, got)
	}
}

func TestNoFieldIsLostOnTheWay(t *testing.T) {
	trip(t, FromInfo, (*Info).Backend, nil)
	trip(t, FromCreateVolume, (*CreateVolumeRequest).lenient, nil)
	trip(t, FromVolume, (*Volume).lenient, nil)
	trip(t, FromCreateSnapshot, (*CreateSnapshotRequest).Backend, nil)
	trip(t, FromSnapshot, (*Snapshot).Backend, nil)
	trip(t, FromCapacity, func(m *Capacity) (backend.Capacity, error) { return m.Backend(), nil }, nil)
	trip(t, FromConnection, (*Connection).Backend, nil)
	trip(t, FromPublication, (*Publication).Backend, nil)
	trip(t, FromEvent, (*Event).Backend, nil)
	trip(t, FromSize, func(m *Size) (backend.Size, error) { return m.Backend(), nil }, nil)
	trip(t, func(p backend.Page) *Page { m, _ := FromPage(p); return m }, func(m *Page) (backend.Page, error) { return m.Backend(), nil }, nil)
	trip(t, func(p backend.Publish) *PublishRequest { m, _ := FromPublish(p); return m }, (*PublishRequest).lenient,
		func(p *backend.Publish) { p.Initiator = "nqn.x" })
}

// Filled to the last field, a source is two, and secrets are of two transports:
// the checks say so, and nothing else.
func (m *CreateVolumeRequest) lenient() (backend.CreateVolume, error) {
	r, err := m.Backend()
	return r, onlyInvalid(err)
}

func (m *Volume) lenient() (backend.Volume, error) {
	v, err := m.Backend()
	return v, onlyInvalid(err)
}

func (m *PublishRequest) lenient() (backend.Publish, error) {
	r, err := m.Backend()
	return r, onlyInvalid(err)
}

func onlyInvalid(err error) error {
	if errors.Is(err, backend.ErrInvalid) {
		return nil
	}
	return fmt.Errorf("want ErrInvalid, got %w", err)
}

func TestZeroValuesStayZero(t *testing.T) {
	if v, err := FromEvent(backend.Event{}).Backend(); err != nil || !reflect.DeepEqual(v, backend.Event{}) {
		t.Error(v, err)
	}
	if m := FromAuth(backend.Auth{}); m != nil || m.Backend() != (backend.Auth{}) {
		t.Error(m)
	}
	c, err := FromConnection(backend.Connection{}).Backend()
	if err != nil || !reflect.DeepEqual(c, backend.Connection{}) {
		t.Error(c, err)
	}
}

func TestAnErrorIsTheSameOnTheOtherSide(t *testing.T) {
	for _, k := range kinds {
		sent := fmt.Errorf("volume fast.v-1: %w: the way out", k.err)
		got := FromStatus(t.Context(), Status(sent).Err())
		if got.Error() != sent.Error() {
			t.Errorf("%q became %q", sent, got)
		}
		for _, other := range kinds {
			if errors.Is(got, other.err) != (other.err == k.err) {
				t.Errorf("%v is %v: %t", got, other.err, errors.Is(got, other.err))
			}
		}
	}
}

func TestInUseKeepsItsNode(t *testing.T) {
	want := backend.InUse{Object: "fast.v-1", Node: "node-7", Why: "published"}
	err := FromStatus(t.Context(), Status(fmt.Errorf("delete: %w", &want)).Err())
	got := (*backend.InUse)(nil)
	if !errors.As(err, &got) || *got != want || !errors.Is(err, backend.ErrInUse) {
		t.Fatalf("%v: %+v", err, got)
	}
}

func TestWhatIsNoAnswerIsAnUnknownOutcome(t *testing.T) {
	for _, c := range []codes.Code{codes.Unavailable, codes.Internal, codes.Unknown, codes.ResourceExhausted, codes.Canceled} {
		if err := FromStatus(t.Context(), status.Error(c, "x")); !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("%v: %v", c, err)
		}
	}
	if err := FromStatus(t.Context(), Status(errors.New("disk on fire")).Err()); !errors.Is(err, backend.ErrUnavailable) ||
		!strings.Contains(err.Error(), "disk on fire") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := FromStatus(ctx, status.Error(codes.Canceled, "x")); !errors.Is(err, context.Canceled) || errors.Is(err, backend.ErrUnavailable) {
		t.Error(err)
	}
}

func TestAFieldOfTheFutureIsRefused(t *testing.T) {
	b, err := proto.Marshal(&CreateVolumeRequest{Name: "a", Size: &Size{Required: 1}})
	if err != nil {
		t.Fatal(err)
	}
	nested := protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1)
	for what, b := range map[string][]byte{
		"at the top": append(b, nested...),
		"in a size":  protowire.AppendBytes(protowire.AppendTag(b, 3, protowire.BytesType), nested),
	} {
		m := &CreateVolumeRequest{}
		if err := proto.Unmarshal(b, m); err != nil {
			t.Fatal(err)
		}
		if err := Known(m); !errors.Is(err, backend.ErrUnsupported) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
