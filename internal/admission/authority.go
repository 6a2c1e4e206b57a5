package admission

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// skew is how far the clock of an API server may be behind.
const skew = 10 * time.Minute

// Times are those of certificates. Each certificate is renewed when two thirds of its life are over.
type Times struct {
	// Authority is how long the certificate authority is good, Serving what it signs.
	Authority, Serving time.Duration
	// Look is how often a replica looks whether the authority is another one, and the leader whether all is as it should be.
	Look time.Duration
	// Overlap is how long API servers are told of an authority before anything is signed by it. It must be longer than
	// they take to notice.
	Overlap time.Duration
}

// DefaultTimes are a year for the authority and a month for what it signs. Nobody has to do anything when they are over;
// they only bound for how long a stolen key is of use.
func DefaultTimes() Times {
	return Times{Authority: 365 * 24 * time.Hour, Serving: 30 * 24 * time.Hour, Look: 10 * time.Second, Overlap: 10 * time.Second}
}

// authority signs the certificates with which managers serve.
type authority struct {
	// certificate is its own, key belongs to it.
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	// trusted are the certificates of all authorities to trust, its own first: what earlier ones have signed is in use
	// for a while.
	trusted []*x509.Certificate
}

// newAuthority makes an authority that is good from now on, and trusts those before it that still are.
func newAuthority(now time.Time, lifetime time.Duration, before *authority) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of the authority for webhook certificates: %w", err)
	}
	template := newTemplate("keelson-webhook-ca", now, now.Add(lifetime))
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	template.MaxPathLenZero = true
	certificate, err := sign(template, template, key, key)
	if err != nil {
		return nil, err
	}
	made := &authority{certificate: certificate, key: key, trusted: []*x509.Certificate{certificate}}
	if before != nil {
		for _, earlier := range before.trusted {
			if now.Before(earlier.NotAfter) {
				made.trusted = append(made.trusted, earlier)
			}
		}
	}
	return made, nil
}

// issue returns a new certificate to serve with under these names, which are DNS names and IP addresses.
func (a *authority) issue(now time.Time, lifetime time.Duration, names []string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of a webhook certificate: %w", err)
	}
	until := now.Add(lifetime)
	if a.certificate.NotAfter.Before(until) {
		until = a.certificate.NotAfter
	}
	template := newTemplate("keelson-webhook", now, until)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	leaf, err := sign(template, a.certificate, key, a.key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}, nil
}

func newTemplate(name string, now, until time.Time) *x509.Certificate {
	// A random serial number of 128 bits, because the two of them together name a certificate.
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		panic(err) // crypto/rand never fails
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name, SerialNumber: serial.Text(36)},
		NotBefore: now.Add(-skew), NotAfter: until,
	}
}

func sign(template, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) (*x509.Certificate, error) {
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate %s: %w", template.Subject.CommonName, err)
	}
	return x509.ParseCertificate(raw)
}

// isDue reports whether a certificate is to be renewed.
func isDue(certificate *x509.Certificate, now time.Time) bool {
	begin := certificate.NotBefore.Add(skew)
	return !now.Before(begin.Add(certificate.NotAfter.Sub(begin) * 2 / 3))
}

// bundle returns the certificates to trust as PEM.
func (a *authority) bundle() []byte {
	var out bytes.Buffer
	for _, certificate := range a.trusted {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}))
	}
	return out.Bytes()
}

// keyPEM returns the key as PEM.
func (a *authority) keyPEM() ([]byte, error) {
	raw, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return nil, fmt.Errorf("write the key of the authority for webhook certificates: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), nil
}

// parseAuthority reads what bundle and keyPEM have written.
func parseAuthority(bundle, key []byte) (*authority, error) {
	pair, err := tls.X509KeyPair(bundle, key)
	if err != nil {
		return nil, err
	}
	ours, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("the key is not of the kind that keelson makes")
	}
	a := &authority{key: ours}
	for _, raw := range pair.Certificate {
		certificate, err := x509.ParseCertificate(raw)
		if err != nil {
			return nil, err
		}
		a.trusted = append(a.trusted, certificate)
	}
	a.certificate = a.trusted[0]
	if !a.certificate.IsCA {
		return nil, errors.New("the first certificate is not that of an authority")
	}
	return a, nil
}
