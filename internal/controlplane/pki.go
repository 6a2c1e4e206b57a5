package controlplane

import (
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/pki"
)

const (
	caLifetime   = 10 * 365 * 24 * time.Hour
	leafLifetime = 365 * 24 * time.Hour
)

// serviceNetwork is the default network of Services, used unless another node on this host has it.
const serviceNetwork = "10.96.0.0/16"

// nameAPIServerCert names the files of the serving certificate of the API.
const nameAPIServerCert = "apiserver"

// certificate describes a certificate.
type certificate struct {
	name   string // file name in pki/, without ending
	issuer string // name of the authority that signs it; empty for an authority
	pki.Template
}

// The CAs, and the users with certificates. Their names are those in Kubernetes' default RBAC rules; the
// administrator is in the group with all permissions.
var certificates = []certificate{
	newAuthority("ca", "keelson-ca"),
	newAuthority("front-proxy-ca", "keelson-front-proxy-ca"),
	newServer(nameAPIServerCert, "kube-apiserver", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local", "127.0.0.1", "::1"),
	newServer(nameSimulatedKubelet, "simulated-kubelet", "127.0.0.1"),
	newClient("front-proxy-client", "front-proxy-ca", "front-proxy-client"),
	newClient(userAdmin, "ca", "keelson-admin", "system:masters"),
	newClient(nameControllerManager, "ca", "system:kube-controller-manager"),
	newClient(nameScheduler, "ca", "system:kube-scheduler"),
	newClient(nameKwok, "ca", kwokUser),
}

func newAuthority(name, commonName string) certificate {
	return certificate{name: name, Template: pki.Template{CommonName: commonName, IsCA: true, Lifetime: caLifetime}}
}

func newServer(name, commonName string, names ...string) certificate {
	return certificate{name: name, issuer: "ca", Template: pki.Template{
		CommonName: commonName, Names: names, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, Lifetime: leafLifetime,
	}}
}

func newClient(name, issuer, user string, groups ...string) certificate {
	return certificate{name: name, issuer: issuer, Template: pki.Template{
		CommonName: user, Organization: groups, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, Lifetime: leafLifetime,
	}}
}

// certificates returns the certificates of this control plane, with the configured names of the administrator and
// the API.
func (cp *ControlPlane) certificates() []certificate {
	wanted := slices.Clone(certificates)
	for i := range wanted {
		c := &wanted[i]
		switch {
		case c.name == userAdmin && cp.opts.User != "":
			c.CommonName = cp.opts.User
		case c.name == nameAPIServerCert:
			// The first address of Services belongs to the Service "kubernetes".
			c.Names = slices.Concat(c.Names, []string{cp.services().Addr().Next().String()}, cp.opts.CertSANs)
			if cp.opts.Address != "" && !slices.Contains(c.Names, cp.opts.Address) {
				c.Names = append(c.Names, cp.opts.Address)
			}
		}
	}
	return append(cp.ofGeneration(append(wanted, nodeCertificates(cp.realNodes())...)), userCertificates(cp.opts.Users)...)
}

// ensureCertificates creates missing certificates and keys. It renews certificates, with the same key, that have reached
// half of their lifetime, are damaged or do not match their template. It reports whether it changed anything.
//
// A renewed CA keeps its key and name, so the certificates that it signed stay valid. A damaged key is replaced
// unless other files depend on it: then the error explains the consequences, and the user decides.
func ensureCertificates(dir layout, wanted []certificate, now time.Time) (changed bool, err error) {
	pairs := map[string]pki.Pair{}
	for _, c := range wanted {
		p, made, err := ensureCertificate(dir, c, pairs[c.issuer], now)
		if err != nil {
			return changed, fmt.Errorf("certificate %s: %w", c.name, err)
		}
		pairs[c.name] = p
		changed = changed || made
	}
	_, err = ensureKey(dir.pki("sa.key"), "all tokens of ServiceAccounts become invalid")
	return changed, err
}

func ensureCertificate(dir layout, c certificate, issuer pki.Pair, now time.Time) (p pki.Pair, made bool, err error) {
	loss := ""
	if c.issuer == "" {
		loss = "all certificates are replaced, and copies of the kubeconfig stop working"
	}
	if p.Key, err = ensureKey(dir.pki(c.name+".key"), loss); err != nil {
		return pki.Pair{}, false, err
	}
	path := dir.pki(c.name + ".crt")
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return pki.Pair{}, false, err
	}
	// Nothing depends on the bytes of a certificate, so an unreadable one is replaced.
	existing, err := cert.ParseCertsPEM(data)
	if err == nil {
		p.Certificate = existing[0]
		if c.Matches(p, issuer.Certificate) && !pki.NeedsRenewal(p.Certificate, now) {
			return p, false, nil
		}
	}
	if p, err = c.Issue(p.Key, issuer, now); err != nil {
		return pki.Pair{}, false, err
	}
	if data, err = cert.EncodeCertificates(p.Certificate); err != nil {
		return pki.Pair{}, false, err
	}
	return p, true, atomicfile.Write(path, data, atomicfile.Volatile)
}

// ensureKey reads a private key, or creates one. loss describes the consequences of replacing the key; a damaged key is replaced
// only if there are none. Only keys with consequences are written durably: everything else in pki/ is created again at the next
// start.
func ensureKey(path, loss string) (crypto.Signer, error) {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err == nil {
		key, err := pki.ParseKey(data)
		if err == nil {
			return key, nil
		}
		if loss != "" {
			return nil, fmt.Errorf("%s is damaged (%w): restore it from a backup, or delete it; then %s", path, err, loss)
		}
	}
	key, err := pki.NewKey()
	if err != nil {
		return nil, err
	}
	if data, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
		return nil, err
	}
	return key, atomicfile.Write(path, data, atomicfile.Durability(loss != ""))
}
