package attach_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
	nvmeauth "github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
	"github.com/csi-mpath/csi-mpath/pkg/secret"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/volume"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

var (
	oneWay = volume.Secrets{"node.session.auth.username": "node", "node.session.auth.password": "marked-secret-01"}
	mutual = with(oneWay, "node.session.auth.username_in", "array", "node.session.auth.password_in", "marked-secret-02")
)

// with is a copy with more keys and values; an empty value takes a key away.
func with(s volume.Secrets, pairs ...string) volume.Secrets {
	out := maps.Clone(s)
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = secret.Text(pairs[i+1])
		if pairs[i+1] == "" {
			delete(out, pairs[i])
		}
	}
	return out
}

// recorded has the keys as democratic-csi has them.
func recorded(s volume.Secrets) volume.Secrets {
	out := volume.Secrets{}
	for k, v := range s {
		out["node-db."+k] = v
	}
	return out
}

// Each kind of CHAP that a target may want, and each that a Secret may have.
func TestEachKindOfCHAPIsUsedOrItsFaultIsNamed(t *testing.T) {
	wants := map[string]auth.Credentials{
		"none":    {},
		"one-way": {User: "node", Secret: "marked-secret-01"},
		"mutual":  {User: "node", Secret: "marked-secret-01", MutualUser: "array", MutualSecret: "marked-secret-02"},
	}
	for _, c := range []struct {
		target  string
		has     string
		secrets volume.Secrets
		is      error
		says    string
	}{
		{"none", "nothing", nil, nil, ""},
		{"none", "keys of others", volume.Secrets{"node.sendtargets.auth.password": "marked-secret-03", "type": "x"}, nil, ""},
		{"one-way", "one-way", oneWay, nil, ""},
		{"one-way", "one-way and discovery's", with(oneWay, "discovery.sendtargets.auth.username", "x", "discovery.sendtargets.auth.password", "marked-secret-03"), nil, ""},
		{"mutual", "mutual", mutual, nil, ""},
		{"one-way", "nothing", nil, volume.ErrDenied, "node.session.auth.username"},
		{"one-way", "discovery's only", volume.Secrets{"discovery.sendtargets.auth.username": "node", "discovery.sendtargets.auth.password": "marked-secret-01"}, volume.ErrInvalid, "node.session.auth.username"},
		{"one-way", "a wrong secret", with(oneWay, "node.session.auth.password", "marked-wrong-0001"), volume.ErrDenied, "authentication"},
		{"one-way", "a wrong user", with(oneWay, "node.session.auth.username", "other"), volume.ErrDenied, "authentication"},
		{"mutual", "a wrong secret of the target", with(mutual, "node.session.auth.password_in", "marked-wrong-0002"), volume.ErrDenied, "target"},
		{"one-way", "no user", with(oneWay, "node.session.auth.username", ""), volume.ErrInvalid, "user"},
		{"one-way", "no password", with(oneWay, "node.session.auth.password", ""), volume.ErrInvalid, "secret"},
		{"mutual", "half of the target's", with(mutual, "node.session.auth.username_in", ""), volume.ErrInvalid, "user"},
		{"mutual", "only the target's", with(mutual, "node.session.auth.username", "", "node.session.auth.password", ""), volume.ErrInvalid, "mutual"},
		{"one-way", "one too short", with(oneWay, "node.session.auth.password", "marked"), volume.ErrInvalid, "shorter"},
		{"none", "one-way", oneWay, volume.ErrDenied, "authentication"},
		{"mutual", "democratic-csi's keys", recorded(mutual), nil, ""},
	} {
		t.Run(c.target+" with "+c.has, func(t *testing.T) {
			r := newRig(t, &target.Config{Auth: wants[c.target]})
			q := r.rawRequest(1, func(a *attrs.Attachment) { a.CHAP = c.target != "none" && c.secrets != nil })
			q.Secrets = c.secrets
			err := r.node.Stage(t.Context(), q)
			if c.is == nil {
				r.must(err)
				r.unstageRaw(1)
				return
			}
			r.want(err, c.is)
			if strings.Contains(err.Error(), "marked") || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v: has a secret, or says nothing about %s", err, c.says)
			}
		})
	}
}

// The storage's secret changes: sessions go on, and the next login has the secret
// that the latest call brought along.
func TestANewSecretCountsFromTheNextLogin(t *testing.T) {
	for _, story := range []struct {
		transport  string
		rig        func(t *testing.T) *rig
		change     func(r *rig)
		old, fresh volume.Secrets
	}{
		{"iSCSI", func(t *testing.T) *rig {
			return newRig(t, &target.Config{Auth: auth.Credentials{User: "node", Secret: "marked-secret-01"}})
		}, func(r *rig) {
			r.must(r.iscsi.SetAccess(nil, auth.Credentials{User: "node", Secret: "marked-secret-11"}))
		}, oneWay, with(oneWay, "node.session.auth.password", "marked-secret-11")},
		{"NVMe", func(t *testing.T) *rig {
			r := newRig(t, nil)
			r.must(r.nvme.SetAccess(nil, nvmeauth.Credentials{Secret: firstKey}, nil))
			return r
		}, func(r *rig) {
			r.must(r.nvme.SetAccess(nil, nvmeauth.Credentials{Secret: secondKey}, nil))
		}, volume.Secrets{"dhchap-secret": firstKey}, volume.Secrets{"dhchap-secret": secondKey}},
	} {
		t.Run(story.transport, func(t *testing.T) {
			r := story.rig(t)
			q := r.rawRequest(1, nil)
			q.Secrets = story.old
			r.must(r.node.Stage(t.Context(), q))
			r.allPaths("v1")
			begun := r.logins()
			story.change(r)
			r.put(r.machine.Disk("v1"), 0, 'x')
			if r.messageOf("v1") != "2 paths work" || r.logins() != begun {
				t.Errorf("sessions did not go on: %s", r.messageOf("v1"))
			}
			r.portals[0].Drop()
			r.until("the old secret refused", func() bool {
				m := r.messageOf("v1")
				return strings.HasPrefix(m, "1 of 2 paths work") && strings.Contains(m, "authentication")
			})
			r.must(r.node.Publish(t.Context(), volume.PublishRequest{Volume: "v1", Staging: q.Staging, Target: q.Staging + "p", Block: true, Secrets: story.fresh}))
			r.allPaths("v1")
			r.must(r.node.Unpublish(t.Context(), "v1", q.Staging+"p"))
			r.unstageRaw(1)
		})
	}
}

// Keys in the form of nvme-cli, of 32 zeroes and ones.
var (
	firstKey  = nvmeauth.FormatSecret(1, make([]byte, 32))
	secondKey = nvmeauth.FormatSecret(1, []byte(strings.Repeat("1", 32)))
)
