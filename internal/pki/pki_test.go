package pki

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"

	"k8s.io/client-go/util/keyutil"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func issue(t *testing.T, template Template, issuer Pair) Pair {
	t.Helper()
	made, err := template.Issue(newKey(t), issuer, noon)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

var (
	authority = Template{CommonName: "ca", IsCA: true, Lifetime: 10 * time.Hour}
	server    = Template{CommonName: "server", Names: []string{"one.example", "192.0.2.1", "two.example", "::1"},
		Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, Lifetime: time.Hour}
	client = Template{CommonName: "somebody", Organization: []string{"a", "b"},
		Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, Lifetime: time.Hour}
)

func TestIssuedCertificatesAreTrusted(t *testing.T) {
	ca := issue(t, authority, Pair{})
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate)
	verify := func(p Pair, at time.Time, name string, usage x509.ExtKeyUsage) error {
		_, err := p.Certificate.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: at, DNSName: name, KeyUsages: []x509.ExtKeyUsage{usage}})
		return err
	}
	serving := issue(t, server, ca)
	for _, name := range server.Names {
		if err := verify(serving, noon, name, x509.ExtKeyUsageServerAuth); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	user := issue(t, client, ca)
	for _, tt := range []struct {
		name  string
		pair  Pair
		at    time.Time
		usage x509.ExtKeyUsage
		want  bool
	}{
		{name: "a client", pair: user, at: noon, usage: x509.ExtKeyUsageClientAuth, want: true},
		{name: "a peer whose clock is behind", pair: user, at: noon.Add(-Backdate + time.Second), usage: x509.ExtKeyUsageClientAuth, want: true},
		{name: "a client as a server", pair: user, at: noon, usage: x509.ExtKeyUsageServerAuth},
		{name: "an expired certificate", pair: user, at: noon.Add(client.Lifetime + time.Second), usage: x509.ExtKeyUsageClientAuth},
		{name: "another authority of that name", pair: issue(t, client, issue(t, authority, Pair{})), at: noon, usage: x509.ExtKeyUsageClientAuth},
		{name: "signed by a leaf", pair: issue(t, client, serving), at: noon, usage: x509.ExtKeyUsageClientAuth},
	} {
		if err := verify(tt.pair, tt.at, "", tt.usage); (err == nil) != tt.want {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestNoCertificateOutlivesItsIssuer(t *testing.T) {
	ca := issue(t, authority, Pair{})
	long := client
	long.Lifetime = 2 * authority.Lifetime
	if got := issue(t, long, ca).Certificate.NotAfter; !got.Equal(ca.Certificate.NotAfter) {
		t.Errorf("valid until %v, its issuer until %v", got, ca.Certificate.NotAfter)
	}
}

func TestMatches(t *testing.T) {
	ca, other := issue(t, authority, Pair{}), issue(t, authority, Pair{})
	pair := issue(t, server, ca)
	change := func(f func(*Template)) Template {
		changed := server
		f(&changed)
		return changed
	}
	for _, tt := range []struct {
		name     string
		template Template
		pair     Pair
		issuer   *x509.Certificate
		want     bool
	}{
		{name: "the same", template: server, pair: pair, issuer: ca.Certificate, want: true},
		{name: "any issuer", template: server, pair: pair, want: true},
		{name: "another issuer of that name", template: server, pair: pair, issuer: other.Certificate},
		{name: "another key", template: server, pair: Pair{pair.Certificate, newKey(t)}, issuer: ca.Certificate},
		{name: "another common name", template: change(func(t *Template) { t.CommonName = "x" }), pair: pair, issuer: ca.Certificate},
		{name: "another group", template: change(func(t *Template) { t.Organization = []string{"x"} }), pair: pair, issuer: ca.Certificate},
		{name: "one name less", template: change(func(t *Template) { t.Names = t.Names[1:] }), pair: pair, issuer: ca.Certificate},
		{name: "one address less", template: change(func(t *Template) { t.Names = t.Names[:3] }), pair: pair, issuer: ca.Certificate},
	} {
		if got := tt.template.Matches(tt.pair, tt.issuer); got != tt.want {
			t.Errorf("%s: got %t", tt.name, got)
		}
	}
}

func TestNeedsRenewal(t *testing.T) {
	made := issue(t, Template{CommonName: "x", Lifetime: 2*time.Hour - Backdate}, Pair{}).Certificate
	for at, want := range map[time.Duration]bool{
		-Backdate - time.Second: true, -Backdate + time.Second: false, 0: false, time.Hour - Backdate - time.Second: false, time.Hour - Backdate: true, 3 * time.Hour: true,
	} {
		if got := NeedsRenewal(made, noon.Add(at)); got != want {
			t.Errorf("%v after it was made: got %t", at, got)
		}
	}
}

func TestParseKey(t *testing.T) {
	key := newKey(t)
	sec1, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"SEC 1": sec1, "PKCS #8": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})} {
		read, err := ParseKey(data)
		if err != nil || !read.Public().(interface{ Equal(crypto.PublicKey) bool }).Equal(key.Public()) {
			t.Errorf("%s: read as %v, %v", name, read, err)
		}
	}
	if _, err := ParseKey([]byte("garbage")); err == nil {
		t.Error("garbage is read as a key")
	}
}
