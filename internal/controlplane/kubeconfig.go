package controlplane

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keelson-dev/keelson/internal/atomicfile"
)

// userAdmin names the files of the administrator's certificate.
const userAdmin = "admin"

// renewalInterval is the interval at which a running control plane checks its certificates.
const renewalInterval = time.Hour

// defaultName is the name of the context, cluster and user in a kubeconfig.
const defaultName = "keelson"

// writeKubeconfigs writes the administrator's kubeconfig, with embedded credentials so that it can be copied, and
// one for each component, which refers to files so that the component reloads renewed certificates.
func writeKubeconfigs(dir layout, name, server string, generation int) error {
	ca, err := os.ReadFile(dir.pki("ca.crt"))
	if err != nil {
		return err
	}
	user := clientName(userAdmin, generation)
	crt, err := os.ReadFile(dir.pki(user + ".crt"))
	if err != nil {
		return err
	}
	key, err := os.ReadFile(dir.pki(user + ".key"))
	if err != nil {
		return err
	}
	cluster := &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	admin := &clientcmdapi.AuthInfo{ClientCertificateData: crt, ClientKeyData: key}
	if err := writeKubeconfig(dir.kubeconfig(), name, cluster, admin); err != nil {
		return err
	}
	for _, component := range []string{nameControllerManager, nameScheduler, nameKwok} {
		files := clientName(component, generation)
		user := &clientcmdapi.AuthInfo{ClientCertificate: dir.pki(files + ".crt"), ClientKey: dir.pki(files + ".key")}
		if err := writeKubeconfig(dir.userFile(component), name, cluster, user); err != nil {
			return err
		}
	}
	return nil
}

// writeKubeconfig writes a kubeconfig if it differs from the file.
func writeKubeconfig(path, name string, cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) error {
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: cluster},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: user},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
	if err != nil {
		return fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return updateFile(path, data, atomicfile.Volatile)
}

// updateFile writes a file if its content differs.
func updateFile(path string, data []byte, durability atomicfile.Durability) error {
	existing, err := os.ReadFile(path)
	if err == nil && bytes.Equal(existing, data) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return atomicfile.Write(path, data, durability)
}

// writeKubeconfigs brings the kubeconfigs up to date.
func (cp *ControlPlane) writeKubeconfigs() error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return cp.writeKubeconfigsLocked()
}

func (cp *ControlPlane) writeKubeconfigsLocked() error {
	err := writeKubeconfigs(cp.dir, cmp.Or(cp.opts.Name, defaultName), cp.state.server(), cp.generation())
	if err != nil {
		return err
	}
	if err := cp.writeUsersLocked(); err != nil {
		return err
	}
	for _, s := range cp.nodes {
		if err := cp.writeNodeCredentials(s); err != nil {
			return fmt.Errorf("credentials of the node %s: %w", s.Name, err)
		}
	}
	return nil
}

// clientConfig returns the administrator's client configuration. It refers to files, because client-go reloads
// such certificates for each new connection and every five minutes, and then closes the connections with the old
// one. It would use an embedded certificate even after its expiry.
func clientConfig(dir layout, server string, generation int) *rest.Config {
	user := clientName(userAdmin, generation)
	return &rest.Config{
		Host: server,
		TLSClientConfig: rest.TLSClientConfig{
			CAFile:   dir.pki("ca.crt"),
			CertFile: dir.pki(user + ".crt"),
			KeyFile:  dir.pki(user + ".key"),
		},
		QPS: -1, // the API server has priority and fairness
	}
}

// renewCertificates renews the certificates until the context ends. kube-apiserver and the clients of the
// components reload the files.
func (cp *ControlPlane) renewCertificates(ctx context.Context) {
	interval := cp.renewalInterval()
	ticker := cp.opts.Clock.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			if err := cp.renewOnce(); err != nil {
				cp.opts.Log.Error(err, "Failed to renew certificates, will retry", "interval", interval)
			}
		}
	}
}

func (cp *ControlPlane) renewOnce() error {
	changed, err := ensureCertificates(cp.dir, cp.certificates(), cp.opts.Clock.Now())
	if changed {
		cp.opts.Log.Info("Renewed certificates", "directory", cp.dir.path("pki"))
	}
	// Even without a change: the last attempt may have failed between the two.
	_, trustErr := cp.writeClientTrust()
	err = errors.Join(err, trustErr, cp.writeKubeconfigs())
	if changed {
		cp.opts.Changed()
	}
	return err
}
