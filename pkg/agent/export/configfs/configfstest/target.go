package configfstest

import (
	"slices"
	"strings"
	"syscall"
)

// NewTarget is an empty /sys/kernel/config/target, with what the kernel's iSCSI
// target adds to it.
func NewTarget() *Tree {
	return newTree(&kind{child: fabric, groups: map[string]*kind{
		"core": {child: &kind{child: device, attrs: map[string]string{"hba_info": "", "hba_mode": ""}}},
	}})
}

// fabric is what mkdir iscsi makes, once the module is there.
var fabric = &kind{child: target, attrs: map[string]string{"lio_version": ""}, made: func(n *node) error {
	if n.name != "iscsi" {
		return syscall.EINVAL
	}
	return nil
}}

// device is a backstore.
var device = &kind{
	attrs: map[string]string{"control": "", "udev_path": "", "enable": "0", "info": "", "alias": ""},
	groups: map[string]*kind{
		"attrib": {attrs: map[string]string{"emulate_3pc": "1", "emulate_tpu": "0", "emulate_tpws": "0", "emulate_caw": "1",
			"emulate_write_cache": "0", "is_nonrot": "0", "block_size": "512"}},
		"wwn": {attrs: map[string]string{"vpd_unit_serial": "T10 VPD Unit Serial Number: ", "vendor_id": "LIO-ORG", "product_id": "IBLOCK",
			"company_id": "0x001405"}, set: setWWN},
		"alua": {groups: map[string]*kind{"default_tg_pt_gp": {attrs: map[string]string{"alua_access_state": "0", "tg_pt_gp_id": "0"}}},
			child: &kind{attrs: map[string]string{"alua_access_state": "0", "tg_pt_gp_id": "0"}}},
	},
	set: func(_ *Tree, n *node, name, value string) error {
		enabled := n.attrs["enable"] == "1"
		switch {
		case name == "enable" && (value != "1" || enabled || !strings.Contains(n.attrs["control"], "udev_path=")):
			return syscall.EINVAL
		case name == "control" && enabled:
			return syscall.EEXIST
		}
		return nil
	},
}

// setWWN: what a device is called is fixed while it is exported.
func setWWN(_ *Tree, n *node, _, _ string) error {
	if n.parent.in > 0 {
		return syscall.EINVAL
	}
	return nil
}

// target is an IQN.
var target = &kind{child: portalGroup, made: func(n *node) error {
	if !strings.HasPrefix(n.name, "iqn.") {
		return syscall.EINVAL
	}
	return nil
}}

var portalGroup = &kind{
	made: func(n *node) error {
		if !strings.HasPrefix(n.name, "tpgt_") {
			return syscall.EINVAL
		}
		return nil
	},
	attrs: map[string]string{"enable": "0", "dynamic_sessions": ""},
	groups: map[string]*kind{
		"attrib": {attrs: map[string]string{"authentication": "1", "generate_node_acls": "0", "cache_dynamic_acls": "0",
			"demo_mode_write_protect": "1", "demo_mode_discovery": "1", "default_cmdsn_depth": "64"}},
		"np":   {child: &kind{attrs: map[string]string{"iser": "0"}}},
		"lun":  {child: lun},
		"acls": {child: acl},
		"auth": {attrs: map[string]string{"userid": "", "password": "", "userid_mutual": "", "password_mutual": ""}},
	},
}

// lun holds one link to a device.
var lun = &kind{
	attrs: map[string]string{"alua_tg_pt_gp": ""}, links: true,
	link: func(_ *Tree, at, to *node) error {
		if len(at.links) > 0 || to.kind != device {
			return syscall.EEXIST
		}
		if to.attrs["enable"] != "1" {
			return syscall.ENODEV
		}
		return nil
	},
	// With the device go those who were let at it; their links stay.
	unlink: func(_ *Tree, at, _ *node) error {
		for _, a := range at.parent.parent.dirs["acls"].dirs {
			if m := a.dirs[at.name]; m != nil {
				m.attrs["write_protect"] = ""
			}
		}
		return nil
	},
}

// acl is what one initiator may do.
var acl = &kind{
	attrs: map[string]string{"info": "No active iSCSI Session for Initiator Endpoint: ", "cmdsn_depth": "64"},
	groups: map[string]*kind{
		"auth":   {attrs: map[string]string{"userid": "", "password": "", "userid_mutual": "", "password_mutual": ""}},
		"attrib": {attrs: map[string]string{"authentication": "-1"}},
	},
	child: mappedLUN,
}

// mappedLUN holds one link to a LUN of the same portal group that has a device.
var mappedLUN = &kind{
	attrs: map[string]string{"write_protect": ""}, links: true,
	link: func(_ *Tree, at, to *node) error {
		group := at.parent.parent.parent
		if to.kind != lun || len(to.links) == 0 || to.parent.parent != group {
			return syscall.EINVAL
		}
		if len(at.links) > 0 {
			return syscall.EEXIST
		}
		at.attrs["write_protect"] = "0"
		return nil
	},
	unlink: func(_ *Tree, at, _ *node) error {
		at.attrs["write_protect"] = ""
		return nil
	},
	set: func(_ *Tree, n *node, name, value string) error {
		if name == "write_protect" && (n.attrs[name] == "" || !slices.Contains([]string{"0", "1"}, value)) {
			return syscall.EINVAL
		}
		return nil
	},
}

// Connect makes an initiator's access say that it is logged in, or not.
func (t *Tree) Connect(target, initiator string, on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := "No active iSCSI Session for Initiator Endpoint: " + initiator
	if on {
		text = "InitiatorName: " + initiator + "\nInitiatorAlias: \nLIO Session ID: 1   ISID: 0x80 0x00 0x00 0x00 0x00 0x01  TSIH: 1  SessionType: Normal\nSession State: TARG_SESS_STATE_LOGGED_IN\n"
	}
	t.root.dirs["iscsi"].dirs[target].dirs["tpgt_1"].dirs["acls"].dirs[initiator].attrs["info"] = text
}
