package admission

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SecretName is the name of the Secret with the authority of the webhook.
const SecretName = "keelson-webhook-ca"

// The keys of that Secret.
const (
	// bundleKey has the certificates to trust, the one of the authority first.
	bundleKey = "ca.crt"
	// keyKey has the key of the authority.
	keyKey = "ca.key"
)

// errDamaged says that what is kept is no authority, so that another one is to take its place.
var errDamaged = errors.New("is not what keelson keeps there")

// Store keeps the authority for all replicas of a manager.
type Store interface {
	// load returns the authority, nil if there is none, and its version. The error is errDamaged if the stored data is not an
	// authority.
	load(ctx context.Context) (a *authority, version string, err error)
	// save stores an authority if the stored one still has that version.
	save(ctx context.Context, a *authority, version string) error
}

// NewSecretStore returns a Store that is a Secret. It is read through live, which has no cache, and written through c.
func NewSecretStore(c client.Client, live client.Reader, secret client.ObjectKey) Store {
	return &secretStore{client: c, live: live, key: secret}
}

type secretStore struct {
	client client.Client
	live   client.Reader
	key    client.ObjectKey
}

func (s *secretStore) load(ctx context.Context) (*authority, string, error) {
	var secret corev1.Secret
	err := s.live.Get(ctx, s.key, &secret)
	if apierrors.IsNotFound(err) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("get Secret %s: %w", s.key, err)
	}
	a, err := parseAuthority(secret.Data[bundleKey], secret.Data[keyKey])
	if err != nil {
		return nil, secret.ResourceVersion, fmt.Errorf("the Secret %s %w: %w", s.key, errDamaged, err)
	}
	return a, secret.ResourceVersion, nil
}

func (s *secretStore) save(ctx context.Context, a *authority, version string) error {
	key, err := keyutil.MarshalPrivateKeyToPEM(a.Key)
	if err != nil {
		return err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.key.Namespace, Name: s.key.Name, ResourceVersion: version,
			Labels: map[string]string{"app.kubernetes.io/name": "keelson"},
		},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{bundleKey: a.bundle(), keyKey: key},
	}
	if version == "" {
		err = s.client.Create(ctx, secret)
	} else {
		err = s.client.Update(ctx, secret)
	}
	if err != nil {
		return fmt.Errorf("write Secret %s: %w", s.key, err)
	}
	return nil
}

// NewMemoryStore returns a Store for a manager that is the only one: its authority is as good as the process lives.
func NewMemoryStore() Store { return &memoryStore{} }

type memoryStore struct {
	mu      sync.Mutex
	kept    *authority
	version int
}

func (s *memoryStore) load(context.Context) (*authority, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil {
		return nil, "", nil
	}
	return s.kept, strconv.Itoa(s.version), nil
}

func (s *memoryStore) save(_ context.Context, a *authority, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = a
	s.version++
	return nil
}
