package configfstest

import (
	"strconv"
	"strings"
	"syscall"
)

// NewNvmet is an empty /sys/kernel/config/nvmet.
func NewNvmet() *Tree {
	return newTree(&kind{groups: map[string]*kind{
		"subsystems": {child: subsystem},
		"ports":      {child: port},
		"hosts":      {child: host},
	}})
}

var subsystem = &kind{
	attrs: map[string]string{"attr_allow_any_host": "0", "attr_serial": "0123456789abcdef", "attr_model": "Linux", "attr_firmware": "6.12",
		"attr_version": "1.3", "attr_cntlid_min": "1", "attr_cntlid_max": "65519", "attr_qid_max": "128"},
	groups: map[string]*kind{
		"namespaces":    {child: namespace},
		"allowed_hosts": {links: true, link: onlyTo(&host)},
	},
	set: func(_ *Tree, n *node, name, value string) error {
		switch {
		case name == "attr_allow_any_host" && value == "1" && len(n.dirs["allowed_hosts"].links) > 0:
			return syscall.EINVAL
		case name == "attr_serial" && len(value) > 20, name == "attr_model" && len(value) > 40:
			return syscall.EINVAL
		}
		return nil
	},
}

var namespace = &kind{
	attrs: map[string]string{"device_path": "(null)", "device_uuid": "random", "device_nguid": "00000000-0000-0000-0000-000000000000",
		"ana_grpid": "1", "enable": "0", "buffered_io": "0", "revalidate_size": ""},
	made: func(n *node) error {
		if nsid, err := strconv.ParseUint(n.name, 10, 32); err != nil || nsid == 0 {
			return syscall.EINVAL
		}
		return nil
	},
	set: func(_ *Tree, n *node, name, value string) error {
		enabled := n.attrs["enable"] == "1"
		switch {
		case enabled && strings.HasPrefix(name, "device_"):
			return syscall.EBUSY
		case name == "enable" && value == "1" && n.attrs["device_path"] == "(null)":
			return syscall.EINVAL
		case name == "revalidate_size" && !enabled:
			return syscall.EINVAL
		}
		return nil
	},
}

var port = &kind{
	attrs: map[string]string{"addr_trtype": "", "addr_adrfam": "", "addr_traddr": "", "addr_trsvcid": "", "addr_treq": "not specified", "addr_tsas": ""},
	made: func(n *node) error {
		if _, err := strconv.ParseUint(n.name, 10, 16); err != nil {
			return syscall.EINVAL
		}
		return nil
	},
	groups: map[string]*kind{
		"subsystems": {links: true, link: listen},
		"ana_groups": {groups: map[string]*kind{"1": {attrs: map[string]string{"ana_state": "optimized"}}},
			child: &kind{attrs: map[string]string{"ana_state": "inaccessible"}}},
	},
	set: func(_ *Tree, n *node, name, _ string) error {
		if strings.HasPrefix(name, "addr_") && len(n.dirs["subsystems"].links) > 0 {
			return syscall.EACCES
		}
		return nil
	},
}

// listen: the first link to a subsystem opens the port.
func listen(t *Tree, at, to *node) error {
	p := at.parent
	switch {
	case to.kind != subsystem || p.attrs["addr_trtype"] == "" || p.attrs["addr_traddr"] == "":
		return syscall.EINVAL
	case len(at.links) > 0:
		return nil
	}
	for _, other := range t.root.dirs["ports"].dirs {
		if len(other.dirs["subsystems"].links) > 0 && other.attrs["addr_traddr"] == p.attrs["addr_traddr"] &&
			other.attrs["addr_trsvcid"] == p.attrs["addr_trsvcid"] {
			return syscall.EADDRINUSE
		}
	}
	return nil
}

var host = &kind{
	attrs: map[string]string{"dhchap_key": "", "dhchap_ctrl_key": "", "dhchap_hash": "hmac(sha256)", "dhchap_dhgroup": "null"},
	set: func(_ *Tree, _ *node, name, value string) error {
		if strings.HasSuffix(name, "_key") && !strings.HasPrefix(value, "DHHC-1:") {
			return syscall.EINVAL
		}
		return nil
	},
}

func onlyTo(k **kind) func(*Tree, *node, *node) error {
	return func(_ *Tree, _, to *node) error {
		if to.kind != *k {
			return syscall.EINVAL
		}
		return nil
	}
}
