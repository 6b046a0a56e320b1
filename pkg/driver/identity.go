package driver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Name is the driver's, as StorageClasses and PersistentVolumes have it.
const Name = "csi-mpath.io"

// Identity answers what both halves are asked. It never touches storage: a probe
// that fails because a portal is dead would kill what keeps volumes alive.
type Identity struct {
	csi.UnimplementedIdentityServer
	Version string
	// Backends of the controller; nil for a node.
	Backends *Backends
}

// GetPluginInfo names the driver.
func (i *Identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: Name, VendorVersion: i.Version}, nil
}

// Probe says that the process is there.
func (i *Identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

// GetPluginCapabilities are those of the driver as a whole. Topology is claimed
// only where a backend has one: otherwise provisioning would want it of nodes.
func (i *Identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	services := []csi.PluginCapability_Service_Type{csi.PluginCapability_Service_CONTROLLER_SERVICE}
	if i.Backends != nil && i.Backends.topology() {
		services = append(services, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	}
	out := []*csi.PluginCapability{{Type: &csi.PluginCapability_VolumeExpansion_{
		VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: csi.PluginCapability_VolumeExpansion_ONLINE}}}}
	for _, s := range services {
		out = append(out, &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: s}}})
	}
	return &csi.GetPluginCapabilitiesResponse{Capabilities: out}, nil
}
