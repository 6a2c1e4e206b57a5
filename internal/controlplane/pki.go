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

// serviceNetwork is where Services get their addresses from, unless this machine had another node there.
const serviceNetwork = "10.96.0.0/16"

// nameAPIServerCert names the files of the certificate that the API shows.
const nameAPIServerCert = "apiserver"

// certificate says what one certificate is for.
type certificate struct {
	name   string // file name in pki/, without ending
	issuer string // name of the authority that signs it; empty for an authority
	pki.Template
}

// The authorities and the users that certificates are made for. Users carry the names that Kubernetes' own RBAC rules
// know; the administrator is in the group that may do everything.
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

// certificates returns what this control plane needs: the administrator by the name that was asked for, and the API
// under all its names.
func (cp *ControlPlane) certificates() []certificate {
	wanted := slices.Clone(certificates)
	for i := range wanted {
		c := &wanted[i]
		switch {
		case c.name == userAdmin && cp.opts.User != "":
			c.CommonName = cp.opts.User
		case c.name == nameAPIServerCert:
			// The first address of Services belongs to the API itself (the Service "kubernetes").
			c.Names = slices.Concat(c.Names, []string{cp.services().Addr().Next().String()}, cp.opts.CertSANs)
		}
	}
	if cp.node != nil {
		wanted = append(wanted, nodeCertificates(*cp.node)...)
	}
	return cp.ofGeneration(wanted)
}

// ensureCertificates makes every certificate and key that is missing, and renews certificates, with the same key, that have
// reached half of their lifetime, are damaged or do not match their template. It reports whether it changed
// anything.
//
// An authority is renewed with its old key and name, so what it signed before stays good. A damaged key is replaced
// unless others depend on it: then the error says what its loss means, and the decision is the user's.
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
	// Only the owner of its key depends on the bytes of a certificate, so one that cannot be read is simply replaced.
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

// ensureKey reads a private key, or makes one. A damaged key is replaced if its loss means nothing; loss says what it means. Only a key whose loss matters has to survive a
// power cut: everything else in pki/ is made again at the next start.
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
