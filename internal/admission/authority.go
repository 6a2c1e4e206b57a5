package admission

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/keelson-dev/keelson/internal/pki"
)

// Times are those of certificates. Each certificate is renewed when half of its life is over.
type Times struct {
	// Authority is how long the certificate authority is good, Serving what it signs.
	Authority, Serving time.Duration
	// Look is how often a replica looks whether the authority is another one, and the leader whether all is as it should be.
	Look time.Duration
	// Overlap is how long API servers are told of an authority before anything is signed by it. It must be longer than
	// they take to notice.
	Overlap time.Duration
}

// DefaultTimes are a year for the authority and a month for the certificates that it signs. Both are renewed automatically; the times
// only bound how long a stolen key is useful.
func DefaultTimes() Times {
	return Times{Authority: 365 * 24 * time.Hour, Serving: 30 * 24 * time.Hour, Look: 10 * time.Second, Overlap: 10 * time.Second}
}

// authority signs the certificates with which managers serve.
type authority struct {
	pki.Pair
	// trusted are the certificates of all authorities to trust, its own first: what earlier ones have signed is in use
	// for a while.
	trusted []*x509.Certificate
}

// newAuthority makes an authority that is good from now on, and trusts those before it that still are.
func newAuthority(now time.Time, lifetime time.Duration, before *authority) (*authority, error) {
	key, err := pki.NewKey()
	if err != nil {
		return nil, err
	}
	made, err := pki.Template{CommonName: "keelson-webhook-ca", IsCA: true, Lifetime: lifetime}.Issue(key, pki.Pair{}, now)
	if err != nil {
		return nil, err
	}
	a := &authority{Pair: made, trusted: []*x509.Certificate{made.Certificate}}
	if before != nil {
		for _, earlier := range before.trusted {
			if now.Before(earlier.NotAfter) {
				a.trusted = append(a.trusted, earlier)
			}
		}
	}
	return a, nil
}

// issue returns a new certificate to serve with under these names, which are DNS names and IP addresses.
func (a *authority) issue(now time.Time, lifetime time.Duration, names []string) (*tls.Certificate, error) {
	key, err := pki.NewKey()
	if err != nil {
		return nil, err
	}
	leaf, err := pki.Template{
		CommonName: "keelson-webhook", Names: names, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, Lifetime: lifetime,
	}.Issue(key, a.Pair, now)
	if err != nil {
		return nil, err
	}
	return leaf.TLS(), nil
}

// bundle returns the certificates to trust as PEM.
func (a *authority) bundle() []byte {
	bundle, _ := cert.EncodeCertificates(a.trusted...) // writes to memory, never fails
	return bundle
}

// parseAuthority reads the certificates and the key of an authority.
func parseAuthority(bundle, key []byte) (*authority, error) {
	var a authority
	var err error
	if a.trusted, err = cert.ParseCertsPEM(bundle); err != nil {
		return nil, err
	}
	if a.Key, err = pki.ParseKey(key); err != nil {
		return nil, err
	}
	a.Certificate = a.trusted[0]
	switch {
	case !a.IsConsistent():
		return nil, errors.New("the key does not belong to the certificate")
	case !a.Certificate.IsCA:
		return nil, errors.New("the first certificate is not that of an authority")
	}
	return &a, nil
}
