package driver

import (
	"fmt"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// redacted stands for what nobody may read.
const redacted = "[redacted]"

// secretWords are parts of keys under which people put secrets where none belong.
var secretWords = []string{"secret", "password", "passwd", "token", "dhchap", "psk", "tls-key"}

// Redacted is a message as the log may have it (I10): fields that CSI calls
// secret, and values whose keys sound like one, are not in it.
func Redacted(m proto.Message) string {
	c := proto.Clone(m)
	redact(c.ProtoReflect())
	b, err := protojson.MarshalOptions{}.Marshal(c)
	if err != nil {
		return fmt.Sprintf("%T", m) // invalid UTF-8 in it, perhaps a secret
	}
	return string(b)
}

func redact(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case isSecret(f):
			hide(m, f)
		case f.IsMap():
			redactMap(f, v.Map())
		case f.Message() != nil && f.IsList():
			for i := range v.List().Len() {
				redact(v.List().Get(i).Message())
			}
		case f.Message() != nil:
			redact(v.Message())
		}
		return true
	})
}

// isSecret reads CSI's own mark.
func isSecret(f protoreflect.FieldDescriptor) bool {
	o, ok := f.Options().(*descriptorpb.FieldOptions)
	return ok && o != nil && proto.HasExtension(o, csi.E_CsiSecret) && proto.GetExtension(o, csi.E_CsiSecret) == true
}

// hide empties a field; of a map the keys stay.
func hide(m protoreflect.Message, f protoreflect.FieldDescriptor) {
	if !f.IsMap() || f.MapValue().Kind() != protoreflect.StringKind {
		m.Clear(f)
		return
	}
	values := m.Mutable(f).Map()
	values.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		values.Set(k, protoreflect.ValueOfString(redacted))
		return true
	})
}

func redactMap(f protoreflect.FieldDescriptor, values protoreflect.Map) {
	values.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		switch {
		case f.MapValue().Message() != nil:
			redact(v.Message())
		case f.MapValue().Kind() == protoreflect.StringKind && soundsSecret(k.String()):
			values.Set(k, protoreflect.ValueOfString(redacted))
		}
		return true
	})
}

func soundsSecret(key string) bool {
	key = strings.ToLower(key)
	for _, w := range secretWords {
		if strings.Contains(key, w) {
			return true
		}
	}
	return false
}
