package hosted

import (
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keelson-dev/keelson/internal/pki"
)

// Keys of the Secret, besides certificates and their keys.
const (
	// hashKey is the key of the hash of the spec.
	hashKey = "hash.key"
	// authenticationKey is the configuration of authentication of kube-apiserver.
	authenticationKey = "authentication.yaml"
)

// Users of the control plane.
const (
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
	admin             = "admin"
)

// authentication lets everybody ask whether the API is alive: the kubelet, which probes it, has no certificate.
const authentication = `apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
anonymous:
  enabled: true
  conditions: [{path: /livez}, {path: /readyz}, {path: /healthz}]
`

// serviceNetwork is the network of Services in the cluster.
const serviceNetwork = "10.96.0.0/16"

// certificates are those of a control plane whose API has an address.
func (p place) certificates(wanted desire, address string) []pki.Certificate {
	service := p.name + "." + p.namespace
	names := append([]string{"localhost", "127.0.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		"10.96.0.1", p.name, service, service + ".svc", service + ".svc.cluster.local", address}, wanted.certSANs...)
	var members []string
	for i := range wanted.replicas {
		members = append(members, p.host(p.member(i)))
	}
	etcd := pki.NewServer("etcd", "etcd-ca", "etcd", append(members, "localhost", "127.0.0.1")...)
	etcd.Usages = append(etcd.Usages, x509.ExtKeyUsageClientAuth) // members connect to each other
	return []pki.Certificate{
		pki.NewAuthority("ca", "keelson-ca"),
		pki.NewAuthority("front-proxy-ca", "keelson-front-proxy-ca"),
		pki.NewAuthority("etcd-ca", "keelson-etcd-ca"),
		pki.NewServer("apiserver", "ca", "kube-apiserver", names...),
		etcd,
		pki.NewClient("etcd-client", "etcd-ca", "kube-apiserver"),
		pki.NewClient("front-proxy-client", "front-proxy-ca", "front-proxy-client"),
		pki.NewClient(admin, "ca", p.cluster+"-admin", "system:masters"),
		pki.NewClient(controllerManager, "ca", "system:kube-controller-manager"),
		pki.NewClient(scheduler, "ca", "system:kube-scheduler"),
	}
}

// data stores certificates and keys in a Secret.
type data map[string][]byte

// Read implements pki.Store.
func (d data) Read(file string) ([]byte, error) {
	if content, found := d[file]; found {
		return content, nil
	}
	return nil, fs.ErrNotExist
}

// Write implements pki.Store.
func (d data) Write(file string, content []byte, _ bool) error {
	d[file] = content
	return nil
}

// Describe implements pki.Store.
func (d data) Describe(file string) string { return fmt.Sprintf("its key %q", file) }

// newSecret returns the Secret with everything that is missing, or has to be renewed, made anew.
func (p place) newSecret(existing *corev1.Secret, wanted desire, address string, now time.Time) (*corev1.Secret, error) {
	made := data{}
	if existing != nil {
		made = maps.Clone(existing.Data)
	}
	if len(made[hashKey]) == 0 {
		made[hashKey] = make([]byte, 32)
		_, _ = rand.Read(made[hashKey]) // never fails
	}
	if _, err := pki.Ensure(made, p.certificates(wanted, address), now); err != nil {
		return nil, err
	}
	if _, err := pki.EnsureKey(made, "sa.key", "all tokens of ServiceAccounts become invalid"); err != nil {
		return nil, err
	}
	made[authenticationKey] = []byte(authentication)
	kubeconfigs := map[string]*clientcmdapi.AuthInfo{
		admin: {ClientCertificateData: made[admin+".crt"], ClientKeyData: made[admin+".key"]},
		// With files, a renewed certificate is reloaded.
		controllerManager: {ClientCertificate: pkiDir + controllerManager + ".crt", ClientKey: pkiDir + controllerManager + ".key"},
		scheduler:         {ClientCertificate: pkiDir + scheduler + ".crt", ClientKey: pkiDir + scheduler + ".key"},
	}
	for name, user := range kubeconfigs {
		server := "https://127.0.0.1:" + strconv.Itoa(apiPort)
		if name == admin {
			server = "https://" + address
		}
		kubeconfig, err := made.kubeconfig(p.cluster, server, user)
		if err != nil {
			return nil, err
		}
		made[name+".kubeconfig"] = kubeconfig
	}
	return &corev1.Secret{ObjectMeta: p.meta(p.name, ""), Data: made}, nil
}

// needsRenewal reports whether certificates in a Secret are missing, or due.
func (p place) needsRenewal(secret *corev1.Secret, wanted desire, address string, now time.Time) bool {
	changed, err := pki.Ensure(data(maps.Clone(secret.Data)), p.certificates(wanted, address), now)
	return changed || err != nil
}

// kubeconfig returns a kubeconfig for a server.
func (d data) kubeconfig(name, server string, user *clientcmdapi.AuthInfo) ([]byte, error) {
	return clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: server, CertificateAuthorityData: d["ca.crt"]}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: user},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
}

// files are the keys of the Secret that a Pod mounts.
func files(names ...string) []corev1.KeyToPath {
	var all []corev1.KeyToPath
	for _, name := range slices.Sorted(slices.Values(names)) {
		all = append(all, corev1.KeyToPath{Key: name, Path: name})
	}
	return all
}
