// Package pki makes private keys and certificates, for control planes, webhooks and metrics.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"

	"k8s.io/client-go/util/keyutil"
)

// Backdate is how long before it is made a certificate becomes valid, for peers whose clock is behind.
const Backdate = 10 * time.Minute

// NewKey returns a new private key. It is ECDSA, because making RSA keys would be what a start mostly waits for.
func NewKey() (crypto.Signer, error) {
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

// ParseKey reads a private key in PEM.
func ParseKey(data []byte) (crypto.Signer, error) {
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

// Pair is a certificate with its private key.
type Pair struct {
	Certificate *x509.Certificate
	Key         crypto.Signer
}

// IsConsistent reports whether the key is that of the certificate.
func (p Pair) IsConsistent() bool {
	public, ok := p.Key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(p.Certificate.PublicKey)
}

// TLS returns the pair in the form that crypto/tls takes.
func (p Pair) TLS() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{p.Certificate.Raw}, PrivateKey: p.Key, Leaf: p.Certificate}
}

// Template says what a certificate is for.
type Template struct {
	// CommonName and Organization are the subject: for a client the user and its groups.
	CommonName   string
	Organization []string
	// Names are the DNS names and IP addresses of a server.
	Names []string
	// Usages are what a certificate that signs no others is for.
	Usages []x509.ExtKeyUsage
	// IsCA makes it a certificate authority, which signs leaf certificates only.
	IsCA bool
	// Lifetime is how long it is valid, at most as long as its issuer.
	Lifetime time.Duration
}

// Issue makes a certificate for a key. The zero issuer makes one that signs itself.
func (t Template) Issue(key crypto.Signer, issuer Pair, now time.Time) (Pair, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)) // RFC 5280: positive, at most 20 octets
	if err != nil {
		return Pair{}, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: t.CommonName, Organization: t.Organization},
		NotBefore:             now.Add(-Backdate),
		NotAfter:              now.Add(t.Lifetime),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           t.Usages,
		BasicConstraintsValid: true,
	}
	template.DNSNames, template.IPAddresses = t.names()
	if t.IsCA {
		template.IsCA, template.MaxPathLenZero = true, true
		template.KeyUsage |= x509.KeyUsageCertSign
	}
	if issuer.Certificate == nil {
		issuer = Pair{Certificate: template, Key: key}
	} else if issuer.Certificate.NotAfter.Before(template.NotAfter) {
		template.NotAfter = issuer.Certificate.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.Certificate, key.Public(), issuer.Key)
	if err != nil {
		return Pair{}, fmt.Errorf("sign the certificate %s: %w", t.CommonName, err)
	}
	made, err := x509.ParseCertificate(der)
	return Pair{Certificate: made, Key: key}, err
}

// names splits the names of a server as a certificate has them.
func (t Template) names() (dns []string, ips []net.IP) {
	for _, name := range t.Names {
		if ip := net.ParseIP(name); ip != nil {
			ips = append(ips, ip)
		} else {
			dns = append(dns, name)
		}
	}
	return dns, ips
}

// Matches reports whether the certificate of a pair says what the template does, belongs to the key and was signed by the
// issuer (nil: any).
func (t Template) Matches(p Pair, issuer *x509.Certificate) bool {
	certificate := p.Certificate
	if !p.IsConsistent() || issuer != nil && certificate.CheckSignatureFrom(issuer) != nil {
		return false
	}
	dns, ips := t.names()
	// A certificate has its groups in an order of its own.
	groups, wanted := slices.Sorted(slices.Values(certificate.Subject.Organization)), slices.Sorted(slices.Values(t.Organization))
	return certificate.Subject.CommonName == t.CommonName && slices.Equal(groups, wanted) &&
		slices.Equal(certificate.DNSNames, dns) && slices.EqualFunc(certificate.IPAddresses, ips, net.IP.Equal)
}

// NeedsRenewal reports whether half of the lifetime of a certificate is over, or it is not valid yet: it was made when the
// clock was wrong.
func NeedsRenewal(certificate *x509.Certificate, now time.Time) bool {
	half := certificate.NotBefore.Add(certificate.NotAfter.Sub(certificate.NotBefore) / 2)
	return !now.After(certificate.NotBefore) || !now.Before(half)
}
