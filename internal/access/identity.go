package access

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The ConfigMap in which kube-apiserver publishes how it identifies users to aggregated API servers. The keys are those
// of the flags of kube-apiserver.
const (
	ConfigMapNamespace = "kube-system"
	ConfigMapName      = "extension-apiserver-authentication"

	keyClientCA = "requestheader-client-ca-file"
	keyNames    = "requestheader-allowed-names"
	keyUser     = "requestheader-username-headers"
	keyUID      = "requestheader-uid-headers"
	keyGroup    = "requestheader-group-headers"
	keyExtra    = "requestheader-extra-headers-prefix"
)

const (
	// trustLifetime is how long the ConfigMap is trusted before it is read again.
	trustLifetime = time.Minute
	// trustPause is how long a ConfigMap that does not trust a certificate is not read again.
	trustPause = time.Second
)

// errAnonymous means that a request has no identity that kube-apiserver vouches for.
var errAnonymous = errors.New("only kube-apiserver may connect to this server: it needs the certificate of its aggregator. Use the Kubernetes API instead")

// user is who has sent a request, according to kube-apiserver.
type user struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// trust is what the ConfigMap says.
type trust struct {
	roots             *x509.CertPool
	names             []string
	user, uid, groups []string // headers
	extra             []string // prefixes of headers
	readAt            time.Time
}

// authenticator takes the identities of users from headers of the aggregator of kube-apiserver, which has a client
// certificate. The package of k8s.io/apiserver for this links most of an API server into the program.
type authenticator struct {
	reader client.Reader
	now    func() time.Time

	mu      sync.Mutex
	current *trust
}

// authenticate returns who has sent a request. The error is errAnonymous if nobody vouches for it.
func (a *authenticator) authenticate(r *http.Request) (*user, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, errAnonymous
	}
	t, err := a.load(r.Context(), trustLifetime)
	if err != nil {
		return nil, err
	}
	if t.check(r.TLS.PeerCertificates, a.now()) != nil {
		// The authority may have just been replaced.
		if t, err = a.load(r.Context(), trustPause); err != nil {
			return nil, err
		}
		if t.check(r.TLS.PeerCertificates, a.now()) != nil {
			return nil, errAnonymous
		}
	}
	found := t.identify(r.Header)
	if found.Name == "" {
		return nil, errAnonymous
	}
	t.strip(r.Header)
	return found, nil
}

// load returns what the ConfigMap says now, or said at most that long ago.
func (a *authenticator) load(ctx context.Context, atMost time.Duration) (*trust, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := a.now(); a.current != nil && now.Sub(a.current.readAt) < atMost {
		return a.current, nil
	}
	key := client.ObjectKey{Namespace: ConfigMapNamespace, Name: ConfigMapName}
	var published corev1.ConfigMap
	if err := a.reader.Get(ctx, key, &published); err != nil {
		return nil, fmt.Errorf("read how kube-apiserver identifies users from ConfigMap %s: %w", key, err)
	}
	read, err := parseTrust(published.Data)
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s: %w", key, err)
	}
	read.readAt = a.now()
	a.current = read
	return read, nil
}

// parseTrust reads the data of the ConfigMap.
func parseTrust(data map[string]string) (*trust, error) {
	t := &trust{roots: x509.NewCertPool()}
	authorities, err := cert.ParseCertsPEM([]byte(data[keyClientCA]))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", keyClientCA, err)
	}
	for _, authority := range authorities {
		t.roots.AddCert(authority)
	}
	for key, into := range map[string]*[]string{keyNames: &t.names, keyUser: &t.user, keyUID: &t.uid, keyGroup: &t.groups, keyExtra: &t.extra} {
		if data[key] == "" {
			continue // kube-apiserver omits what it does not use
		}
		if err := json.Unmarshal([]byte(data[key]), into); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	if len(t.user) == 0 {
		return nil, fmt.Errorf("%s is empty", keyUser)
	}
	return t, nil
}

// check returns nil if the first certificate is one of the aggregator. Without names, the authority signs for nobody
// else.
func (t *trust) check(chain []*x509.Certificate, now time.Time) error {
	intermediates := x509.NewCertPool()
	for _, other := range chain[1:] {
		intermediates.AddCert(other)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: t.roots, Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return err
	}
	if name := chain[0].Subject.CommonName; len(t.names) > 0 && !slices.Contains(t.names, name) {
		return fmt.Errorf("the certificate of %s is not one of %s", name, strings.Join(t.names, ", "))
	}
	return nil
}

// identify returns the user in the headers.
func (t *trust) identify(header http.Header) *user {
	found := &user{Name: first(header, t.user), UID: first(header, t.uid), Extra: map[string][]string{}}
	for _, name := range t.groups {
		found.Groups = append(found.Groups, header.Values(name)...)
	}
	for name, values := range header {
		for _, prefix := range t.extra {
			if len(name) <= len(prefix) || !strings.EqualFold(name[:len(prefix)], prefix) {
				continue
			}
			key := strings.ToLower(name[len(prefix):])
			if plain, err := url.PathUnescape(key); err == nil {
				key = plain
			}
			found.Extra[key] = append(found.Extra[key], values...)
		}
	}
	return found
}

// strip removes the headers with the user, so that nobody else gets them.
func (t *trust) strip(header http.Header) {
	for _, names := range [][]string{t.user, t.uid, t.groups} {
		for _, name := range names {
			header.Del(name)
		}
	}
	for name := range header {
		for _, prefix := range t.extra {
			if len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
				delete(header, name)
			}
		}
	}
}

// first returns the first value of the first of the headers that has one.
func first(header http.Header, names []string) string {
	for _, name := range names {
		if value := header.Get(name); value != "" {
			return value
		}
	}
	return ""
}
