package cluster

import (
	"context"
	"fmt"
	"time"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// identityNamespace is one that every cluster has, and that nobody replaces.
const identityNamespace = "kube-system"

// UID names a cluster: it is the UID of its namespace kube-system. An API server that
// does not answer is asked again until ctx ends.
func UID(ctx context.Context, client kubernetes.Interface) (uid string, err error) {
	pause := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 8, Cap: askAgainMost}
	for {
		if uid, err = ask(ctx, client); err == nil {
			return uid, nil
		}
		klog.ErrorS(err, "the cluster's name is not known yet: the API server is asked again", "namespace", identityNamespace)
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("cluster: the UID of namespace %s: %w", identityNamespace, err)
		case <-time.After(pause.Step()):
		}
	}
}

// ask asks once.
func ask(ctx context.Context, client kubernetes.Interface) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	ns, err := client.CoreV1().Namespaces().Get(ctx, identityNamespace, meta.GetOptions{})
	if err != nil {
		return "", err
	}
	return string(ns.UID), nil
}
