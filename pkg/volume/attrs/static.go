package attrs

import (
	"encoding/json"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/portal"
	"github.com/csi-mpath/csi-mpath/pkg/tunable"
)

// The attributes of static volumes, by the names that csi-driver-iscsi,
// csi-driver-nvmf, the in-tree iSCSI driver and democratic-csi have.
const (
	keyIQN          = "iqn"
	keyNQN          = "nqn"
	keyTargetPortal = "targetPortal"
	keyPortal       = "portal"
	keyTrAddr       = "targetTrAddr"
	keyTrPort       = "targetTrPort"
	keyTrType       = "targetTrType"
	keyTransports   = "transports"
	keyInitiatorISC = "initiatorName"
	keyHostNQN      = "hostNqn"
	keyHostIDNVMf   = "hostId"
	keyDeviceUUID   = "deviceUUID"
	keyDeviceEUI    = "deviceEUI"
)

// chapKeys say that the storage wants CHAP; secrets come with the call.
var chapKeys = []string{"chapAuthSession", "sessionCHAPAuth"}

// ignored attributes are about what this driver does not do: discovery, the
// kernel's initiator, how another driver attaches.
var ignored = []string{"iscsiInterface", "discovery", "discoveryCHAPAuth", "chapAuthDiscovery", "node_attach_driver", "provisioner_driver",
	"fsType", "readOnly", "deviceID", keyMkfsOptions}

// staticKeys are named when one is unknown.
var staticKeys = []string{keyTargetPortal, keyPortals, keyIQN, keyLUN, keyTrAddr, keyTrPort, keyTransports, keyNQN, keyNSID, keyDeviceUUID,
	keyWWID, keyFencing}

// ParseStatic reads a static volume's volumeAttributes. Tunables may be among
// them: they count until the volume is tuned otherwise.
func ParseStatic(volumeContext map[string]string) (Attachment, error) {
	if err := bounded(volumeContext); err != nil {
		return Attachment{}, err
	}
	tunables, rest := tunable.Split(volumeContext)
	r := &reader{m: rest}
	var a Attachment
	a.Content, a.Fencing = backend.ContentUnknown, FencingReservation
	if len(tunables) > 0 {
		a.Tunables = tunables
	}
	if f := r.take(keyFencing); f != "" {
		a.Fencing = Fencing(f)
	}
	a.WWID = r.take(keyWWID)
	for _, k := range chapKeys {
		a.CHAP = r.boolean(k) || a.CHAP
	}
	a.ReadOnly = rest["readOnly"] == "true"
	r.identify(&a)
	for _, k := range ignored {
		delete(rest, k)
	}
	switch {
	case r.err != nil:
		return Attachment{}, r.err
	case rest["secret"] != "" || rest["secretRef"] != "":
		return Attachment{}, invalid("volumeAttributes: secrets belong into nodeStageSecretRef of the PersistentVolume, not into its attributes")
	case a.Fencing == FencingBackend:
		return Attachment{}, invalid("fencing %q: a static volume has nobody to revoke access: want %s or %s", a.Fencing, FencingReservation, FencingNone)
	}
	if err := refuseRest("volumeAttributes", rest, staticKeys); err != nil {
		return Attachment{}, err
	}
	return a, a.Check()
}

// identify reads which volume, and where.
func (r *reader) identify(a *Attachment) {
	iqn, nqn := r.take(keyIQN), r.take(keyNQN)
	switch {
	case iqn != "" && nqn != "":
		r.fail(invalid("volumeAttributes: both iqn and nqn: a volume is reached over one protocol"))
	case nqn != "":
		a.Transport, a.Target = backend.NVMe, nqn
		r.nvme(a)
	case iqn != "":
		a.Transport, a.Target = backend.ISCSI, iqn
		r.iscsi(a)
	default:
		r.fail(invalid("volumeAttributes: neither iqn nor nqn says which volume it is"))
	}
}

func (r *reader) iscsi(a *Attachment) {
	a.LUN = uint32(r.number(keyLUN, maxLUN))
	a.Initiator = r.take(keyInitiatorISC)
	all := []string{r.take(keyTargetPortal), r.take(keyPortal)}
	all = append(all, r.list(keyPortals)...)
	r.portals(a, all, portal.ISCSIPort)
}

// list takes a comma list, or a JSON array of texts.
func (r *reader) list(key string) []string {
	v := strings.TrimSpace(r.take(key))
	if !strings.HasPrefix(v, "[") || strings.HasPrefix(v, "[") && !strings.HasSuffix(v, "]") || net.ParseIP(strings.Trim(v, "[]")) != nil {
		return strings.Split(v, ",")
	}
	var out []string
	if err := json.Unmarshal([]byte(v), &out); err != nil {
		if strings.Contains(v, `"`) {
			r.fail(invalid("%s %q: want a comma list, or a JSON array of texts", key, clip(v)))
		}
		return strings.Split(v, ",") // "[::1],[::2]"
	}
	return out
}

// portals fills a's with what is not empty; doubles, as targetPortal is of
// portals in many volumes, count once.
func (r *reader) portals(a *Attachment, all []string, port string) {
	for _, s := range all {
		if strings.TrimSpace(s) == "" {
			continue
		}
		p, err := portal.Normalize(s, port)
		if err != nil {
			r.fail(invalid("%w", err))
			return
		}
		if !slices.Contains(a.Portals, backend.Portal{Address: p}) {
			a.Portals = append(a.Portals, backend.Portal{Address: p})
		}
	}
}

func (r *reader) nvme(a *Attachment) {
	if v := r.take(keyTrType); v != "" && !strings.EqualFold(v, "tcp") {
		r.fail(invalid("%s %q: only tcp", keyTrType, clip(v)))
	}
	uuid, eui := r.take(keyDeviceUUID), r.take(keyDeviceEUI)
	switch {
	case a.WWID != "":
	case uuid != "":
		a.WWID = "uuid." + strings.ToLower(uuid)
	case eui != "":
		a.WWID = "eui." + strings.ToLower(eui)
	}
	a.NSID = 1 // upstream volumes name the namespace by its UUID, which is checked
	if r.m[keyNSID] != "" || a.WWID == "" {
		a.NSID = uint32(r.number(keyNSID, maxNSID))
	}
	a.Initiator, a.HostID = r.take(keyHostNQN), strings.ToLower(strings.ReplaceAll(r.take(keyHostIDNVMf), "-", ""))
	port := r.take(keyTrPort)
	if port == "" {
		port = portal.NVMePort
	}
	var sources []string
	all := r.list(keyTrAddr)
	sources = append(sources, make([]string, len(all))...)
	for _, key := range []string{keyTransport, keyTransports} {
		for _, t := range r.list(key) {
			address, source := r.transport(t)
			all, sources = append(all, address), append(sources, source)
		}
	}
	r.portals(a, all, port)
	r.sources(a, sources, all)
}

// transport reads "tcp://host:4420?host-iface=eth0".
func (r *reader) transport(s string) (address, source string) {
	if s = strings.TrimSpace(s); s == "" {
		return "", ""
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "tcp" || u.Host == "" || u.Path != "" || u.User != nil {
		r.fail(invalid("transport %q: want tcp://host:port", clip(s)))
		return "", ""
	}
	q := u.Query()
	source = q.Get("host-traddr")
	if source == "" {
		source = q.Get("host-iface")
	}
	return u.Host, source
}

// sources makes interfaces of transports the tunable, unless that is given.
func (r *reader) sources(a *Attachment, sources, all []string) {
	var kept []string
	any := false
	for i, s := range sources {
		if all[i] != "" {
			kept, any = append(kept, s), any || s != ""
		}
	}
	if any && a.Tunables["sourceAddresses"] == "" && len(kept) == len(a.Portals) {
		a.Tunables = tunable.Merge(a.Tunables, map[string]string{"sourceAddresses": strings.Join(kept, ",")})
	}
}

// Attached is the attachment that a node stages with: publish_context's, or,
// where no controller made one, what a static volume says of itself. Either way
// a static volume's identity is what its attributes say (I1).
func Attached(publishContext, volumeContext map[string]string) (Attachment, error) {
	if len(publishContext) > 0 {
		return ParsePublishContext(publishContext)
	}
	if !IsStatic(volumeContext) {
		return Attachment{}, invalid("neither a publish_context nor a static volume's attributes: ControllerPublishVolume comes first")
	}
	return ParseStatic(maps.Clone(volumeContext))
}

// FromConnection is a backend's connection as an attachment.
func FromConnection(c backend.Connection) Attachment {
	return Attachment{Connection: c, Fencing: FencingBackend}
}
