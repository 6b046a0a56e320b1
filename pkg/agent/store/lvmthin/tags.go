package lvmthin

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// What is known of an object lies in its tags: LVM writes them with the volume,
// in one step, and moves them with it.
const (
	tagPrefix = "csi-mpath."
	// tagVersion is the format of the tags. Version 1 is the first.
	tagVersion = "1"
)

// Keys of tags.
const (
	keyVersion    = "version"
	keyPhase      = "phase"
	keyReadOnly   = "readonly"
	keyTenant     = "tenant"
	keyName       = "name" // base64
	keyIdentity   = "identity"
	keySource     = "source"
	keySnapshot   = "snapshot"
	keyCreated    = "created"
	keyGeneration = "generation"
	keyTunable    = "tunable" // any number of: base64 of the key, ".", base64 of the value
)

// described is an object as its tags say.
type described struct {
	phase    store.Phase
	readOnly bool
	labels   store.Labels
}

var b64 = base64.RawURLEncoding

// encode is the tags of an object, in the order of the keys.
func encode(d described) ([]string, error) {
	l := d.labels
	tags := []string{pair(keyVersion, tagVersion), pair(keyPhase, string(d.phase)), pair(keyTenant, l.Tenant), pair(keyName, b64.EncodeToString([]byte(l.Name))),
		pair(keyIdentity, l.Identity), pair(keyCreated, strconv.FormatInt(l.Created.Unix(), 10)), pair(keyGeneration, strconv.FormatInt(l.Generation, 10))}
	if d.readOnly {
		tags = append(tags, pair(keyReadOnly, "1"))
	}
	if !l.Source.IsZero() {
		tags = append(tags, pair(keySource, l.Source.String()))
	}
	if l.SourceSnapshot {
		tags = append(tags, pair(keySnapshot, "1"))
	}
	for _, k := range slices.Sorted(maps.Keys(l.Tunables)) {
		tags = append(tags, pair(keyTunable, b64.EncodeToString([]byte(k))+"."+b64.EncodeToString([]byte(l.Tunables[k]))))
	}
	for _, t := range tags {
		if len(t) > maxTag {
			return nil, fmt.Errorf("%w: tag %.40q has %d bytes, at most %d", backend.ErrInvalid, t, len(t), maxTag)
		}
	}
	return tags, nil
}

func pair(key, value string) string { return tagPrefix + key + "=" + value }

// ours reports whether a volume has tags of ours.
func ours(tags []string) bool {
	return slices.ContainsFunc(tags, func(t string) bool { return strings.HasPrefix(t, tagPrefix+keyVersion+"=") })
}

// decode reads the tags of an object strictly; those of others are theirs.
func decode(tags []string) (described, error) {
	seen := map[string]string{}
	var d described
	for _, t := range tags {
		own, ok := strings.CutPrefix(t, tagPrefix)
		if !ok {
			continue
		}
		key, value, ok := strings.Cut(own, "=")
		_, twice := seen[key]
		if !ok || twice && key != keyTunable {
			return described{}, fmt.Errorf("tag %.80q: no value, or there twice", t)
		}
		seen[key] = value
		if err := d.take(key, value); err != nil {
			return described{}, fmt.Errorf("tag %.80q: %w", t, err)
		}
	}
	for _, key := range []string{keyVersion, keyPhase, keyCreated, keyGeneration} {
		if _, ok := seen[key]; !ok {
			return described{}, fmt.Errorf("no tag %s%s", tagPrefix, key)
		}
	}
	return d, d.labels.Check()
}

// take is one tag.
func (d *described) take(key, value string) (err error) {
	l := &d.labels
	switch key {
	case keyVersion:
		if value != tagVersion {
			return fmt.Errorf("this program reads version %s", tagVersion)
		}
	case keyPhase:
		if d.phase = store.Phase(value); !d.phase.Valid() {
			return errors.New("no such phase")
		}
	case keyReadOnly:
		d.readOnly, err = flag(value)
	case keyTenant:
		l.Tenant = value
	case keyName:
		l.Name, err = text(value)
	case keyIdentity:
		l.Identity = value
	case keySource:
		l.Source, err = backend.ParseID(value)
	case keySnapshot:
		l.SourceSnapshot, err = flag(value)
	case keyCreated:
		var unix int64
		unix, err = strconv.ParseInt(value, 10, 64)
		l.Created = time.Unix(unix, 0).UTC()
	case keyGeneration:
		l.Generation, err = strconv.ParseInt(value, 10, 64)
	case keyTunable:
		return d.tunable(value)
	default:
		return errors.New("no such tag in this version")
	}
	return err
}

func (d *described) tunable(value string) error {
	k, v, ok := strings.Cut(value, ".")
	key, err := text(k)
	val, err2 := text(v)
	if err := errors.Join(err, err2); err != nil || !ok {
		return errors.Join(errors.New("no tunable"), err)
	}
	if _, twice := d.labels.Tunables[key]; twice || len(d.labels.Tunables) >= backend.MaxTunables {
		return errors.New("there twice, or too many")
	}
	if d.labels.Tunables == nil {
		d.labels.Tunables = map[string]string{}
	}
	d.labels.Tunables[key] = val
	return nil
}

func flag(s string) (bool, error) {
	if s != "1" {
		return false, errors.New("want 1")
	}
	return true, nil
}

func text(s string) (string, error) {
	b, err := b64.Strict().DecodeString(s)
	return string(b), err
}

// retag is the arguments that turn one list of tags into another, in one step.
func retag(from, to []string) []string {
	var args []string
	for _, t := range from {
		if strings.HasPrefix(t, tagPrefix) && !slices.Contains(to, t) {
			args = append(args, "--deltag", t)
		}
	}
	for _, t := range to {
		if !slices.Contains(from, t) {
			args = append(args, "--addtag", t)
		}
	}
	return args
}
