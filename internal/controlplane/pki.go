package controlplane

import (
	"os"
	"slices"
	"time"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/pki"
)

// serviceNetwork is the default network of Services, used unless another node on this host has it.
const serviceNetwork = "10.96.0.0/16"

// nameAPIServerCert names the files of the serving certificate of the API.
const nameAPIServerCert = "apiserver"

// The CAs, and the users with certificates. Their names are those in Kubernetes' default RBAC rules; the
// administrator is in the group with all permissions.
var certificates = []pki.Certificate{
	pki.NewAuthority("ca", "keelson-ca"),
	pki.NewAuthority("front-proxy-ca", "keelson-front-proxy-ca"),
	pki.NewServer(nameAPIServerCert, "ca", "kube-apiserver", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local", "127.0.0.1", "::1"),
	pki.NewServer(nameSimulatedKubelet, "ca", "simulated-kubelet", "127.0.0.1"),
	pki.NewClient("front-proxy-client", "front-proxy-ca", "front-proxy-client"),
	pki.NewClient(userAdmin, "ca", "keelson-admin", "system:masters"),
	pki.NewClient(nameControllerManager, "ca", "system:kube-controller-manager"),
	pki.NewClient(nameScheduler, "ca", "system:kube-scheduler"),
	pki.NewClient(nameKwok, "ca", kwokUser),
}

// certificates returns the certificates of this control plane, with the configured names of the administrator and
// the API.
func (cp *ControlPlane) certificates() []pki.Certificate {
	wanted := slices.Clone(certificates)
	for i := range wanted {
		c := &wanted[i]
		switch {
		case c.Name == userAdmin && cp.opts.User != "":
			c.CommonName = cp.opts.User
		case c.Name == nameAPIServerCert:
			// The first address of Services belongs to the Service "kubernetes".
			c.Names = slices.Concat(c.Names, []string{cp.services().Addr().Next().String()}, cp.opts.CertSANs)
			if cp.opts.Address != "" && !slices.Contains(c.Names, cp.opts.Address) {
				c.Names = append(c.Names, cp.opts.Address)
			}
		}
	}
	return append(cp.ofGeneration(append(wanted, nodeCertificates(cp.realNodes())...)), pki.UserCertificates(cp.opts.Users)...)
}

// files stores certificates and keys in pki/ of a data directory. Everything there that is not durable is created again at the next
// start.
type files layout

// Read implements pki.Store.
func (f files) Read(file string) ([]byte, error) { return os.ReadFile(f.Describe(file)) }

// Write implements pki.Store.
func (f files) Write(file string, data []byte, durable bool) error {
	return atomicfile.Write(f.Describe(file), data, atomicfile.Durability(durable))
}

// Describe implements pki.Store.
func (f files) Describe(file string) string { return layout(f).pki(file) }

// ensureCertificates brings certificates and keys up to date, as pki.Ensure does.
func ensureCertificates(dir layout, wanted []pki.Certificate, now time.Time) (changed bool, err error) {
	if changed, err = pki.Ensure(files(dir), wanted, now); err != nil {
		return changed, err
	}
	_, err = pki.EnsureKey(files(dir), "sa.key", "all tokens of ServiceAccounts become invalid")
	return changed, err
}
