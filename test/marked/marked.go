// Package marked puts secrets that can be recognized into everything that takes one,
// and looks for them in everything that comes out (I10).
package marked

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
	nvmeauth "github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
)

// The secrets. Users are none.
const (
	mark   = "mArKeD-"
	Node   = mark + "chap-of-the-node"
	Array  = mark + "chap-of-the-array"
	Wrong  = mark + "that-is-wrong"
	Short  = mark + "1"
	Others = mark + "under-a-key-of-others"
)

// Host and Controller are keys of DH-HMAC-CHAP.
var (
	hostKey, controllerKey = []byte(mark + "host-key-of-32-byte.."), []byte(mark + "ctrl-key-of-32-byte..")

	Host       = string(nvmeauth.FormatSecret(1, pad(hostKey)))
	Controller = string(nvmeauth.FormatSecret(1, pad(controllerKey)))
)

func pad(b []byte) []byte { return append(bytes.Clone(b), make([]byte, 32-len(b))...) }

// Right opens a volume over both transports; it has more than they need.
func Right() map[string]string {
	return map[string]string{
		"node.session.auth.username": "node", "node.session.auth.password": Node,
		"node.session.auth.username_in": "array", "node.session.auth.password_in": Array,
		"dhchap-secret": Host, "dhchap-ctrl-secret": Controller,
		"discovery.sendtargets.auth.password": Others, "chapPassword": Others,
	}
}

// Faulty are secrets that cannot be used, by what is wrong with them.
func Faulty() map[string]map[string]string {
	all := map[string]map[string]string{}
	for what, change := range map[string][2]string{
		"a wrong one": {"node.session.auth.password", Wrong}, "a short one": {"node.session.auth.password", Short},
		"no user": {"node.session.auth.username", ""}, "a control character": {"node.session.auth.password", Node + "\x01"},
		"the same twice": {"node.session.auth.password_in", Node}, "half of a key": {"dhchap-secret", Host[:len(Host)-8]},
		"a key of another form": {"dhchap-secret", Others}, "a checksum": {"dhchap-secret", strings.Replace(Host, "A", "B", 1)},
		"a long one": {"node.session.auth.password", strings.Repeat(Node, 100)},
	} {
		s := Right()
		s[change[0]] = change[1]
		all[what] = s
	}
	return all
}

// needles are the forms in which a secret could be seen.
var needles = sync.OnceValue(func() [][]byte {
	all := [][]byte{[]byte(mark), []byte(hex.EncodeToString([]byte(mark))), hostKey, controllerKey, []byte(Host), []byte(Controller)}
	for _, s := range []string{Host, Controller} {
		all = append(all, []byte(strings.Split(s, ":")[2][:24]))
	}
	for shift := range 3 { // wherever a text of base64 has it
		b := base64.StdEncoding.EncodeToString(append(make([]byte, shift), mark...))
		all = append(all, []byte(b[(8*shift+5)/6:8*(shift+len(mark))/6])) // those of its bits alone
	}
	return all
})

// In reports whether a secret is in b.
func In(b []byte) bool {
	for _, n := range needles() {
		if bytes.Contains(b, n) {
			return true
		}
	}
	return false
}

// Caller is a client that has secrets in every call that takes them. Its methods may
// be called from any goroutine.
type Caller struct {
	mu      sync.Mutex
	secrets map[string]string
	calls   map[string]bool
	found   []string
}

// Use are the secrets of calls to come.
func (c *Caller) Use(s map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.secrets = maps.Clone(s)
}

// Found are the calls whose answer or error had a secret, and what it was.
func (c *Caller) Found() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.found
}

// Called are the methods that had secrets.
func (c *Caller) Called() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.calls)
}

// Intercept is a grpc.UnaryClientInterceptor.
func (c *Caller) Intercept(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
	c.mu.Lock()
	if fill(request.(proto.Message).ProtoReflect(), c.secrets) {
		if c.calls == nil {
			c.calls = map[string]bool{}
		}
		c.calls[method] = true
	}
	c.mu.Unlock()
	err := invoke(ctx, method, request, answer, conn, o...)
	text := fmt.Sprint(prototext.Format(answer.(proto.Message)), err)
	if In([]byte(text)) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.found = append(c.found, method+": "+text)
	}
	return err
}

// fill puts secrets into the field of a request that CSI marks as secret.
func fill(m protoreflect.Message, secrets map[string]string) (has bool) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		o, ok := f.Options().(*descriptorpb.FieldOptions)
		if !ok || !f.IsMap() || !proto.HasExtension(o, csi.E_CsiSecret) {
			continue
		}
		v := m.Mutable(f).Map()
		for k, s := range secrets {
			v.Set(protoreflect.ValueOfString(k).MapKey(), protoreflect.ValueOfString(s))
		}
		has = true
	}
	return has
}

// Files are those under a directory that have a secret, except where may says so of a
// path below it; there they must be the owner's only.
func Files(dir string, may func(path string) bool) (found []string, err error) {
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, syscall.ENOSYS) {
			return fs.SkipDir // a volume over FUSE, which lists nothing
		}
		if err != nil || !e.Type().IsRegular() {
			return ignoreGone(err)
		}
		b, err := os.ReadFile(path)
		if err != nil || !In(b) {
			return ignoreGone(err)
		}
		st, err := e.Info()
		if err != nil {
			return ignoreGone(err)
		}
		below, err := filepath.Rel(dir, path)
		if err == nil && (!may(below) || st.Mode().Perm() != 0o600) {
			found = append(found, fmt.Sprintf("%s, mode %v", path, st.Mode()))
		}
		return err
	})
	return found, err
}

// ignoreGone: processes at work replace their files.
func ignoreGone(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

// Check refuses secrets that could not do their work.
func Check() error {
	chap := auth.Credentials{User: "node", Secret: Node, MutualUser: "array", MutualSecret: Array}
	if err := chap.Check(); err != nil {
		return err
	}
	dh := nvmeauth.Credentials{Secret: nvmeauth.Secret(Host), ControllerSecret: nvmeauth.Secret(Controller)}
	return dh.Check()
}
