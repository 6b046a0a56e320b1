package cluster

import (
	"errors"
	"fmt"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// ErrNone says that the process runs in no cluster, and was told of none.
var ErrNone = errors.New("no Kubernetes cluster")

// Connect makes a client of the cluster that a kubeconfig file names, or, without
// one, of that in which the process runs. It asks nobody.
func Connect(kubeconfig, agent string) (kubernetes.Interface, error) {
	cfg, err := configOf(kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg.UserAgent, cfg.QPS, cfg.Burst = agent, requestsPerSecond, burst
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	return kubernetes.NewForConfig(cfg)
}

// Dynamic is Connect for objects of our own API group.
func Dynamic(kubeconfig, agent string) (dynamic.Interface, error) {
	cfg, err := configOf(kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg.UserAgent, cfg.QPS, cfg.Burst = agent, requestsPerSecond, burst
	return dynamic.NewForConfig(cfg)
}

// Known says whether Connect would find a cluster to talk to.
func Known(kubeconfig string) bool {
	_, err := configOf(kubeconfig)
	return !errors.Is(err, ErrNone)
}

func configOf(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		cfg, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, ErrNone
		}
		return cfg, err
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	return cfg, nil
}
