package hosted

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/pki"
)

// Keys of the Secret, besides certificates and their keys.
const (
	// hashKey is the key of the hash of the spec.
	hashKey = "hash.key"
	// authenticationKey is the configuration of authentication of kube-apiserver.
	authenticationKey = "authentication.yaml"
	// clientsKey is the key of the CAs of clients that kube-apiserver trusts, and rotationKey that of the last rotation.
	clientsKey  = "clients.crt"
	rotationKey = "rotation.json"
)

// Users of the control plane.
const (
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
)

// authentication lets everybody ask whether the API is alive: the kubelet, which probes it, has no certificate.
const authentication = `apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
anonymous:
  enabled: true
  conditions: [{path: /livez}, {path: /readyz}, {path: /healthz}]
`

// serviceNetwork is the network of Services, unless the cluster is of a snapshot with another one.
const serviceNetwork = "10.96.0.0/16"

// certificates are those of a control plane whose API has an address, and of its users.
func (p place) certificates(wanted desire, users []pki.User, address string) []pki.Certificate {
	service := p.name + "." + p.namespace
	names := append([]string{"localhost", "127.0.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		wanted.firstService(), p.name, service, service + ".svc", service + ".svc.cluster.local", address}, wanted.certSANs...)
	var members []string
	for i := range wanted.replicas {
		members = append(members, p.host(p.member(i)))
	}
	etcd := pki.NewServer("etcd", "etcd-ca", "etcd", append(members, "localhost", "127.0.0.1")...)
	etcd.Usages = append(etcd.Usages, x509.ExtKeyUsageClientAuth) // members connect to each other
	return append([]pki.Certificate{
		pki.NewAuthority("ca", "keelson-ca"),
		pki.NewAuthority("front-proxy-ca", "keelson-front-proxy-ca"),
		pki.NewAuthority("etcd-ca", "keelson-etcd-ca"),
		pki.NewServer("apiserver", "ca", "kube-apiserver", names...),
		etcd,
		pki.NewClient("etcd-client", "etcd-ca", "kube-apiserver"),
		pki.NewClient("front-proxy-client", "front-proxy-ca", "front-proxy-client"),
		pki.NewClient(controllerManager, "ca", "system:kube-controller-manager"),
		pki.NewClient(scheduler, "ca", "system:kube-scheduler"),
	}, pki.UserCertificates(users)...)
}

// rotation is the last rotation of the credentials of the administrator.
type rotation struct {
	// Token is the Request.Rotation that has requested it; empty if there was none.
	Token string `json:"token,omitempty"`
	// Previous is the name of the CA of the credentials of before, which is trusted until Until.
	Previous string    `json:"previous,omitempty"`
	Until    time.Time `json:"until,omitzero"`
}

// administrator is the user of the kubeconfig of a cluster. The name is no DNS label, so no user of a spec has it. It does not contain that
// of the Cluster, which may be too long for a key of the Secret.
func administrator(token string) pki.User {
	return pki.User{Name: "cluster.admin", Groups: []string{"system:masters"}, Rotation: token}
}

// rotation returns the last rotation.
func (d data) rotation() (rotation, error) { return decode[rotation](d, rotationKey) }

// decode returns a record in the Secret; the zero value if there is none.
func decode[T any](d data, key string) (record T, err error) {
	if content, found := d[key]; found {
		if err = json.Unmarshal(content, &record); err != nil {
			err = fmt.Errorf("its key %q: %w", key, err)
		}
	}
	return record, err
}

// rotate returns the last rotation, or a new one if it is requested.
func rotate(last rotation, wanted desire, now time.Time) rotation {
	switch {
	case wanted.rotation != "" && wanted.rotation != last.Token:
		return rotation{Token: wanted.rotation, Previous: administrator(last.Token).Authority(), Until: now.Add(v1alpha1.DefaultCredentialsOverlap)}
	case !now.Before(last.Until):
		return rotation{Token: last.Token}
	}
	return last
}

// trust writes the CAs of clients that kube-apiserver trusts, and removes the files of all other users.
func (d data) trust(users []pki.User, previous string) {
	kept := map[string]bool{previous + ".crt": true}
	trusted := slices.Clone(d["ca.crt"])
	for _, u := range users {
		trusted = append(trusted, d[u.Authority()+".crt"]...)
		for _, name := range []string{u.Certificate(), u.Authority()} {
			kept[name+".crt"], kept[name+".key"] = true, true
		}
	}
	maps.DeleteFunc(d, func(file string, _ []byte) bool { return strings.HasPrefix(file, pki.UserPrefix) && !kept[file] })
	d[clientsKey] = append(trusted, d[previous+".crt"]...) // nothing if it was deleted, which revokes it at once
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
	last, err := made.rotation()
	if err != nil {
		return nil, err
	}
	last = rotate(last, wanted, now)
	if made[rotationKey], err = json.Marshal(last); err != nil {
		return nil, err
	}
	users := append(slices.Clone(wanted.users), administrator(last.Token))
	if _, err := pki.Ensure(made, p.certificates(wanted, users, address), now); err != nil {
		return nil, err
	}
	made.trust(users, last.Previous)
	if _, err := pki.EnsureKey(made, "sa.key", "all tokens of ServiceAccounts become invalid"); err != nil {
		return nil, err
	}
	made[authenticationKey] = []byte(authentication)
	for _, name := range []string{controllerManager, scheduler} {
		// With files, a renewed certificate is reloaded.
		user := &clientcmdapi.AuthInfo{ClientCertificate: inPod(name + ".crt"), ClientKey: inPod(name + ".key")}
		if made[name+".kubeconfig"], err = made.kubeconfig(p.cluster, "https://127.0.0.1:"+strconv.Itoa(apiPort), user); err != nil {
			return nil, err
		}
	}
	return &corev1.Secret{ObjectMeta: p.meta(p.name, ""), Data: made}, nil
}

// needsRenewal reports whether something in a Secret is missing, due or no longer wanted.
func (p place) needsRenewal(secret *corev1.Secret, wanted desire, address string, now time.Time) bool {
	renewed, err := p.newSecret(secret, wanted, address, now)
	return err != nil || !maps.EqualFunc(secret.Data, renewed.Data, bytes.Equal)
}

// renewalInterval is the interval of observations of a cluster that does not change: certificates are renewed when half of their lifetime is
// over, and the credentials of before a rotation end.
func (p place) renewalInterval(secret *corev1.Secret, wanted desire) time.Duration {
	interval := pki.LeafLifetime / 8
	for _, u := range wanted.users {
		interval = min(interval, u.Lifetime()/8)
	}
	if last, err := data(secret.Data).rotation(); err == nil && last.Previous != "" {
		interval = min(interval, v1alpha1.DefaultCredentialsOverlap)
	}
	return interval
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
