package lab

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const ready = 2 * time.Minute // for a part of the cluster to answer, on a busy machine

// users of the API server, and their groups; nodes are added to them.
var users = []struct{ name, groups string }{
	{"admin", "system:masters"}, {"system:kube-controller-manager", ""}, {"system:kube-scheduler", ""},
}

// controlPlane starts etcd, API server, controller manager and scheduler.
func (l *Lab) controlPlane() {
	l.t.Helper()
	l.keys()
	l.daemon("etcd", l.bin("etcd"), "--data-dir="+l.path("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379", "--listen-peer-urls=http://127.0.0.1:2380")
	l.daemon("kube-apiserver", l.bin("kube-apiserver"), "--etcd-servers=http://127.0.0.1:2379", "--secure-port=443", "--bind-address=0.0.0.0",
		"--advertise-address="+machine, "--cert-dir="+l.path("pki"), "--service-cluster-ip-range=10.96.0.0/24", "--token-auth-file="+l.path("tokens.csv"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+l.path("sa.key"), "--service-account-signing-key-file="+l.path("sa.key"),
		"--kubelet-preferred-address-types=InternalIP", "--endpoint-reconciler-type=none", "--profiling=false")
	l.Until("the API server's certificate", ready, func() error { // it makes its own
		_, err := os.Stat(l.path("pki", "apiserver.crt"))
		return err
	})
	config, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig("admin"))
	l.must(err)
	config.QPS, config.Burst = 200, 400
	l.Kube, err = kubernetes.NewForConfig(config)
	l.must(err)
	l.Dynamic, err = dynamic.NewForConfig(config)
	l.must(err)
	l.Until("the API server", ready, func() error {
		return l.Kube.Discovery().RESTClient().Get().AbsPath("/readyz").Do(l.t.Context()).Error()
	})
	l.daemon("kube-controller-manager", l.bin("kube-controller-manager"), "--kubeconfig="+l.Kubeconfig("system:kube-controller-manager"), "--leader-elect=false",
		"--use-service-account-credentials=true", "--service-account-private-key-file="+l.path("sa.key"), "--root-ca-file="+l.path("pki", "apiserver.crt"),
		"--node-monitor-period=2s", "--node-monitor-grace-period=20s", "--profiling=false")
	l.daemon("kube-scheduler", l.bin("kube-scheduler"), "--kubeconfig="+l.Kubeconfig("system:kube-scheduler"), "--leader-elect=false", "--profiling=false")
}

func (l *Lab) bin(name string) string { return l.Bin + "/" + name }

// keys writes the key of service accounts, and everybody's token.
func (l *Lab) keys() {
	l.t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	l.must(err)
	l.must(os.WriteFile(l.path("sa.key"), pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}), 0o600))
	var table strings.Builder
	all := users
	for _, n := range l.Nodes {
		all = append(all, struct{ name, groups string }{"system:node:" + n.Name, "system:nodes"})
	}
	for _, u := range all {
		l.tokens[u.name] = rand.Text()
		_, _ = fmt.Fprintf(&table, "%s,%s,%s,%q\n", l.tokens[u.name], u.name, u.name, u.groups)
	}
	l.must(os.WriteFile(l.path("tokens.csv"), []byte(table.String()), 0o600))
}

// Kubeconfig writes the file by which a user reaches the API server.
func (l *Lab) Kubeconfig(user string) string {
	l.t.Helper()
	at := l.path(strings.ReplaceAll(user, ":", "-") + ".kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "https://%s:443", certificate-authority: %s}}]
users: [{name: u, user: {token: %s}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
`, machine, l.path("pki", "apiserver.crt"), l.tokens[user])
	l.must(os.WriteFile(at, []byte(text), 0o600))
	return at
}
