package driver

import (
	"context"
	"fmt"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Registrar tells the kubelet that looks into its directory of plugins' sockets of
// the node half: no sidecar has to.
type Registrar struct {
	registration.UnimplementedRegistrationServer
	// Endpoint is the driver's socket as the kubelet sees it, a path of the host.
	Endpoint string
	// Registered is told what the kubelet made of it; nil is good.
	Registered func(error)
}

// GetInfo says what kind of plugin it is, and where.
func (r *Registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: Name, Endpoint: r.Endpoint, SupportedVersions: []string{"1.0.0"}}, nil
}

// NotifyRegistrationStatus is the kubelet's answer.
func (r *Registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	var err error
	if !s.GetPluginRegistered() {
		err = fmt.Errorf("the kubelet refused the plugin: %s", s.GetError())
	}
	r.Registered(err)
	return &registration.RegistrationStatusResponse{}, nil
}
