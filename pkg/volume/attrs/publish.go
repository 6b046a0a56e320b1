package attrs

import (
	"maps"
	"strconv"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// The keys of publish_context. Tunables have a prefix.
const (
	keyVersion    = "version"
	keyTransport  = "transport"
	keyTarget     = "target"
	keyLUN        = "lun"
	keyNSID       = "nsid"
	keyPortals    = "portals"
	keyWWID       = "wwid"
	keyInitiator  = "initiator"
	keyHostID     = "hostID"
	keyEpoch      = "epoch"
	keySize       = "sizeBytes"
	keyReadOnly   = "readOnly"
	keyContent    = "content"
	keyFencing    = "fencing"
	keyCHAP       = "chap"
	keyGeneration = "generation"
	tunablePrefix = "tunable."
)

// publishVersion is the format. Version 1 is the first.
const publishVersion = "1"

var publishKeys = []string{keyVersion, keyTransport, keyTarget, keyLUN, keyNSID, keyPortals, keyWWID, keyInitiator, keyHostID,
	keyEpoch, keySize, keyReadOnly, keyContent, keyFencing, keyCHAP, keyGeneration, tunablePrefix + "*"}

// PublishContext is an attachment as it travels from ControllerPublishVolume to
// the node. There are no secrets in it (I10).
func PublishContext(a Attachment) (map[string]string, error) {
	if err := a.Check(); err != nil {
		return nil, err
	}
	m := map[string]string{keyVersion: publishVersion, keyTransport: string(a.Transport), keyTarget: a.Target,
		keyPortals: formatPortals(a.Portals), keySize: strconv.FormatInt(a.Size, 10), keyReadOnly: strconv.FormatBool(a.ReadOnly),
		keyContent: string(a.Content), keyFencing: string(a.Fencing), keyCHAP: strconv.FormatBool(a.CHAP),
		keyGeneration: strconv.FormatInt(a.Generation, 10)}
	if a.Transport == backend.NVMe {
		m[keyNSID] = strconv.FormatUint(uint64(a.NSID), 10)
	} else {
		m[keyLUN] = strconv.FormatUint(uint64(a.LUN), 10)
	}
	for k, v := range map[string]string{keyWWID: a.WWID, keyInitiator: a.Initiator, keyHostID: a.HostID, keyEpoch: a.Epoch} {
		if v != "" {
			m[k] = v
		}
	}
	for k, v := range a.Tunables {
		m[tunablePrefix+k] = v
	}
	return m, nil
}

// ParsePublishContext reads what PublishContext wrote, and nothing else.
func ParsePublishContext(m map[string]string) (Attachment, error) {
	if err := bounded(m); err != nil {
		return Attachment{}, err
	}
	m = maps.Clone(m)
	r := reader{m: m}
	if v := r.take(keyVersion); v != publishVersion {
		return Attachment{}, invalid("publish_context: version %q: this node reads %s", clip(v), publishVersion)
	}
	var a Attachment
	a.Transport, a.Target = backend.Transport(r.take(keyTransport)), r.take(keyTarget)
	switch a.Transport {
	case backend.NVMe:
		a.NSID = uint32(r.number(keyNSID, maxNSID))
	case backend.ISCSI:
		a.LUN = uint32(r.number(keyLUN, maxLUN))
	}
	a.WWID, a.Initiator, a.HostID, a.Epoch = r.take(keyWWID), r.take(keyInitiator), r.take(keyHostID), r.take(keyEpoch)
	a.Size, a.ReadOnly = r.number(keySize, maxSize), r.boolean(keyReadOnly)
	a.Content, a.Fencing, a.CHAP = backend.Content(r.take(keyContent)), Fencing(r.take(keyFencing)), r.boolean(keyCHAP)
	a.Generation = r.number(keyGeneration, 1<<62)
	var err error
	if a.Portals, err = parsePortals(r.take(keyPortals)); err != nil {
		return Attachment{}, err
	}
	for k, v := range m {
		if name, ok := strings.CutPrefix(k, tunablePrefix); ok {
			if a.Tunables == nil {
				a.Tunables = map[string]string{}
			}
			a.Tunables[name] = v
			delete(m, k)
		}
	}
	if r.err != nil {
		return Attachment{}, r.err
	}
	if err := refuseRest("publish_context", m, publishKeys); err != nil {
		return Attachment{}, err
	}
	return a, a.Check()
}

// reader takes values out of a map; the first that is wrong is its error.
type reader struct {
	m   map[string]string
	err error
}

func (r *reader) take(key string) string {
	v := r.m[key]
	delete(r.m, key)
	return v
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// number takes a decimal number of 0..most, in its shortest form.
func (r *reader) number(key string, most int64) int64 {
	v := r.take(key)
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 || n > most || strconv.FormatInt(n, 10) != v {
		r.fail(invalid("%s %q: want a number from 0 to %d", key, clip(v), most))
		return 0
	}
	return n
}

// boolean takes "true" or "false"; nothing is false.
func (r *reader) boolean(key string) bool {
	switch v := r.take(key); v {
	case "true":
		return true
	case "", "false":
		return false
	default:
		r.fail(invalid("%s %q: want true or false", key, clip(v)))
		return false
	}
}
