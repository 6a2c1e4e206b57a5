package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/keelson-dev/keelson/internal/atomicfile"
)

const (
	caLifetime   = 10 * 365 * 24 * time.Hour
	leafLifetime = 365 * 24 * time.Hour
	// clockSkew is how far certificates reach back, for clients whose clock is behind.
	clockSkew = 5 * time.Minute
)

// serviceNetwork is where Services get their addresses from, unless this machine had another node there.
const serviceNetwork = "10.96.0.0/16"

// nameAPIServerCert names the files of the certificate that the API shows.
const nameAPIServerCert = "apiserver"

// certificate says what one certificate is for.
type certificate struct {
	name   string // file name in pki/, without ending
	issuer string // name of the authority that signs it; empty for an authority
	config cert.Config
}

// The authorities and the users that certificates are made for. Users carry the names that Kubernetes' own RBAC rules
// know; the administrator is in the group that may do everything.
var certificates = []certificate{
	{name: "ca", config: cert.Config{CommonName: "keelson-ca"}},
	{name: "front-proxy-ca", config: cert.Config{CommonName: "keelson-front-proxy-ca"}},
	{name: nameAPIServerCert, issuer: "ca", config: cert.Config{
		CommonName: "kube-apiserver",
		Usages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		AltNames: cert.AltNames{
			DNSNames: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
			IPs:      []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		},
	}},
	{name: "front-proxy-client", issuer: "front-proxy-ca", config: clientOf("front-proxy-client")},
	{name: userAdmin, issuer: "ca", config: clientOf("keelson-admin", "system:masters")},
	{name: nameControllerManager, issuer: "ca", config: clientOf("system:kube-controller-manager")},
	{name: nameScheduler, issuer: "ca", config: clientOf("system:kube-scheduler")},
	{name: nameKwok, issuer: "ca", config: clientOf(kwokUser)},
}

// certificates returns what this control plane needs: the administrator by the name that was asked for, and the API
// under all its names.
func (cp *ControlPlane) certificates() []certificate {
	wanted := slices.Clone(certificates)
	for i := range wanted {
		c := &wanted[i]
		switch {
		case c.name == userAdmin && cp.opts.User != "":
			c.config.CommonName = cp.opts.User
		case c.name == nameAPIServerCert:
			c.config.AltNames.DNSNames = slices.Clone(c.config.AltNames.DNSNames)
			// The first address of Services belongs to the API itself (the Service "kubernetes").
			c.config.AltNames.IPs = append(slices.Clone(c.config.AltNames.IPs), cp.services().Addr().Next().AsSlice())
			for _, name := range cp.opts.CertSANs {
				if ip := net.ParseIP(name); ip != nil {
					c.config.AltNames.IPs = append(c.config.AltNames.IPs, ip)
				} else {
					c.config.AltNames.DNSNames = append(c.config.AltNames.DNSNames, name)
				}
			}
		}
	}
	if cp.node != nil {
		wanted = append(wanted, nodeCertificates(*cp.node)...)
	}
	return cp.ofGeneration(wanted)
}

func clientOf(user string, groups ...string) cert.Config {
	return cert.Config{CommonName: user, Organization: groups, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
}

// pair is a certificate with its private key.
type pair struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// ensureCertificates makes every certificate and key that is missing, and makes certificates anew that have lived half
// their time, that are damaged or that do not say what they should, with the same key. It tells whether it changed
// anything.
//
// An authority is renewed with its old key and name, so what it signed before stays good. A damaged key is replaced
// unless others depend on it: then the error says what its loss means, and the decision is the user's.
func ensureCertificates(dir layout, wanted []certificate, now time.Time) (changed bool, err error) {
	pairs := map[string]pair{}
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

func ensureCertificate(dir layout, c certificate, issuer pair, now time.Time) (p pair, made bool, err error) {
	loss := ""
	if c.issuer == "" {
		loss = "all certificates are made anew, and copies of the kubeconfig stop working"
	}
	if p.key, err = ensureKey(dir.pki(c.name+".key"), loss); err != nil {
		return pair{}, false, err
	}
	path := dir.pki(c.name + ".crt")
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return pair{}, false, err
	}
	// Nobody but its key's owner depends on the bytes of a certificate, so one that cannot be read is just made again.
	existing, err := cert.ParseCertsPEM(data)
	if err == nil && isGood(existing[0], c, p.key, issuer.cert, now) {
		p.cert = existing[0]
		return p, false, nil
	}
	if p.cert, err = issue(c, p.key, issuer, now); err != nil {
		return pair{}, false, err
	}
	return p, true, atomicfile.Write(path, encodeCert(p.cert), atomicfile.Volatile)
}

// isGood tells whether a certificate says what it should, belongs to the key and its issuer, and has more than half of
// its time left.
func isGood(crt *x509.Certificate, c certificate, key crypto.Signer, issuer *x509.Certificate, now time.Time) bool {
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(crt.PublicKey) {
		return false
	}
	if issuer != nil && crt.CheckSignatureFrom(issuer) != nil {
		return false
	}
	if crt.Subject.CommonName != c.config.CommonName || !slices.Equal(crt.Subject.Organization, c.config.Organization) ||
		!slices.Equal(crt.DNSNames, c.config.AltNames.DNSNames) ||
		!slices.EqualFunc(crt.IPAddresses, c.config.AltNames.IPs, net.IP.Equal) {
		return false // made by another version of this program
	}
	half := crt.NotBefore.Add(crt.NotAfter.Sub(crt.NotBefore) / 2)
	return now.After(crt.NotBefore) && now.Before(half)
}

// issue makes a certificate; without an issuer, an authority that signs itself.
func issue(c certificate, key crypto.Signer, issuer pair, now time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)) // RFC 5280: positive, at most 20 octets
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: c.config.CommonName, Organization: c.config.Organization},
		DNSNames:     c.config.AltNames.DNSNames,
		IPAddresses:  c.config.AltNames.IPs,
		NotBefore:    now.Add(-clockSkew),
		NotAfter:     now.Add(leafLifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  c.config.Usages,

		BasicConstraintsValid: true,
	}
	if issuer.cert == nil {
		template.IsCA = true
		template.KeyUsage |= x509.KeyUsageCertSign
		template.NotAfter = now.Add(caLifetime)
		issuer = pair{cert: template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.cert, key.Public(), issuer.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func encodeCert(crt *x509.Certificate) []byte {
	data, _ := cert.EncodeCertificates(crt) // writes to memory, never fails
	return data
}

// ensureKey reads a private key, or makes one. ECDSA, because making RSA keys is what a start would mostly wait for.
// A damaged key is replaced if its loss means nothing; loss says what it means. Only a key whose loss matters has to survive a
// power cut: everything else in pki/ is made again at the next start.
func ensureKey(path, loss string) (crypto.Signer, error) {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err == nil {
		key, err := parseKey(data)
		if err == nil {
			return key, nil
		}
		if loss != "" {
			return nil, fmt.Errorf("%s is damaged (%w): restore it from a backup, or delete it; then %s", path, err, loss)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if data, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
		return nil, err
	}
	return key, atomicfile.Write(path, data, atomicfile.Durability(loss != ""))
}

func parseKey(data []byte) (crypto.Signer, error) {
	parsed, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return nil, err
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, errors.New("this kind of key cannot sign")
	}
	return key, nil
}
