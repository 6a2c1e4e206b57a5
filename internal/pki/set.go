package pki

import (
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// The lifetimes of the certificates of a set.
const (
	AuthorityLifetime = 10 * 365 * 24 * time.Hour
	LeafLifetime      = 365 * 24 * time.Hour
)

// Certificate is one of a set of certificates. It is stored as NAME.crt, with its private key in NAME.key.
type Certificate struct {
	Name string
	// Issuer is the name of the authority that signs it; empty for an authority.
	Issuer string
	Template
}

// NewAuthority returns a certificate authority.
func NewAuthority(name, commonName string) Certificate {
	return Certificate{Name: name, Template: Template{CommonName: commonName, IsCA: true, Lifetime: AuthorityLifetime}}
}

// NewServer returns a serving certificate for names and addresses.
func NewServer(name, issuer, commonName string, names ...string) Certificate {
	return Certificate{Name: name, Issuer: issuer, Template: Template{
		CommonName: commonName, Names: names, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, Lifetime: LeafLifetime,
	}}
}

// NewClient returns the certificate of a user with groups.
func NewClient(name, issuer, user string, groups ...string) Certificate {
	return Certificate{Name: name, Issuer: issuer, Template: Template{
		CommonName: user, Organization: groups, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, Lifetime: LeafLifetime,
	}}
}

// Store stores the files of a set.
type Store interface {
	// Read returns the content of a file. The error of a missing one is an fs.ErrNotExist.
	Read(file string) ([]byte, error)
	// Write replaces a file. What is not durable may be lost in a crash: it is made again.
	Write(file string, data []byte, durable bool) error
	// Describe names a file in messages.
	Describe(file string) string
}

// Ensure creates missing certificates and keys; issuers come first in a set. It renews certificates, with the same key, that have
// reached half of their lifetime, are damaged or do not match their template. It reports whether it changed anything.
//
// A renewed authority keeps its key and name, so the certificates that it signed stay valid. A damaged key is replaced unless other
// files depend on it: then the error explains the consequences, and the user decides.
func Ensure(store Store, wanted []Certificate, now time.Time) (changed bool, err error) {
	pairs := map[string]Pair{}
	for _, c := range wanted {
		p, made, err := c.ensure(store, pairs[c.Issuer], now)
		if err != nil {
			return changed, fmt.Errorf("certificate %s: %w", c.Name, err)
		}
		pairs[c.Name] = p
		changed = changed || made
	}
	return changed, nil
}

func (c Certificate) ensure(store Store, issuer Pair, now time.Time) (p Pair, made bool, err error) {
	loss := ""
	if c.Issuer == "" {
		loss = "all certificates are replaced, and copies of the kubeconfig stop working"
	}
	if p.Key, err = EnsureKey(store, c.Name+".key", loss); err != nil {
		return Pair{}, false, err
	}
	data, err := store.Read(c.Name + ".crt")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Pair{}, false, err
	}
	// Nothing depends on the bytes of a certificate, so an unreadable one is replaced.
	existing, err := cert.ParseCertsPEM(data)
	if err == nil {
		p.Certificate = existing[0]
		if c.Matches(p, issuer.Certificate) && !NeedsRenewal(p.Certificate, now) {
			return p, false, nil
		}
	}
	if p, err = c.Issue(p.Key, issuer, now); err != nil {
		return Pair{}, false, err
	}
	if data, err = cert.EncodeCertificates(p.Certificate); err != nil {
		return Pair{}, false, err
	}
	return p, true, store.Write(c.Name+".crt", data, false)
}

// EnsureKey reads a private key, or creates one. loss describes the consequences of replacing the key; a damaged key is replaced only
// if there are none, and only a key with consequences is written durably.
func EnsureKey(store Store, file, loss string) (crypto.Signer, error) {
	data, err := store.Read(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err == nil {
		key, err := ParseKey(data)
		if err == nil {
			return key, nil
		}
		if loss != "" {
			return nil, fmt.Errorf("%s is damaged (%w): restore it from a backup, or delete it; then %s", store.Describe(file), err, loss)
		}
	}
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	if data, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
		return nil, err
	}
	return key, store.Write(file, data, loss != "")
}
