package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/kubeconfig"
)

// credentialsLifetime is how long the credentials of a Cluster are used before they are read again. Rotated ones are valid
// for minutes after their replacement.
const credentialsLifetime = 10 * time.Second

// ErrNotReachable means that the API of a Cluster cannot be reached now. It wraps the reason.
var ErrNotReachable = errors.New("its API cannot be reached now")

// Locator finds the APIs of Clusters, for access to them.
type Locator struct {
	cache, live client.Reader
	namespace   string
	clock       clock.PassiveClock

	mu    sync.Mutex
	known map[types.UID]credentials
}

type credentials struct {
	config *rest.Config
	readAt time.Time
}

// NewLocator returns a Locator that reads Clusters from a cache, and those that it does not have from live, like the Secrets
// with their kubeconfigs in a namespace.
func NewLocator(cache, live client.Reader, secretNamespace string) *Locator {
	return &Locator{cache: cache, live: live, namespace: secretNamespace, clock: clock.RealClock{}, known: map[types.UID]credentials{}}
}

// Locate returns the UID of a Cluster. The error is one of the API.
func (l *Locator) Locate(ctx context.Context, name string) (types.UID, error) {
	cluster, err := l.get(ctx, name)
	if err != nil {
		return "", err
	}
	return cluster.UID, nil
}

func (l *Locator) get(ctx context.Context, name string) (*v1alpha1.Cluster, error) {
	var cluster v1alpha1.Cluster
	return &cluster, kube.GetNew(ctx, l.cache, l.live, client.ObjectKey{Name: name}, &cluster)
}

// Connect returns the UID of a Cluster and the admin's credentials for its API. The error is one of the API, or an
// ErrNotReachable.
func (l *Locator) Connect(ctx context.Context, name string) (types.UID, *rest.Config, error) {
	cluster, err := l.get(ctx, name)
	if err != nil {
		return "", nil, err
	}
	if !cluster.DeletionTimestamp.IsZero() {
		return "", nil, fmt.Errorf("%w: it is being deleted", ErrNotReachable)
	}
	ready := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil:
		return "", nil, fmt.Errorf("%w: it is being provisioned; wait for its condition Ready", ErrNotReachable)
	case ready.Status != metav1.ConditionTrue:
		return "", nil, fmt.Errorf("%w: it is not Ready (%s): %s", ErrNotReachable, ready.Reason, ready.Message)
	case ready.Reason == v1alpha1.ReasonStopped:
		return "", nil, fmt.Errorf("%w: %s", ErrNotReachable, ready.Message)
	}
	l.mu.Lock()
	found, isKnown := l.known[cluster.UID]
	l.mu.Unlock()
	if isKnown && l.clock.Since(found.readAt) < credentialsLifetime {
		return cluster.UID, found.config, nil
	}
	config, err := l.read(ctx, cluster)
	if err != nil {
		return "", nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for uid, other := range l.known {
		if l.clock.Since(other.readAt) >= credentialsLifetime {
			delete(l.known, uid)
		}
	}
	l.known[cluster.UID] = credentials{config: config, readAt: l.clock.Now()}
	return cluster.UID, config, nil
}

// read reads the kubeconfig of a Cluster.
func (l *Locator) read(ctx context.Context, cluster *v1alpha1.Cluster) (*rest.Config, error) {
	key := client.ObjectKey{Namespace: l.namespace, Name: secretName(cluster.Name)}
	var secret corev1.Secret
	err := l.live.Get(ctx, key, &secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%w: the Secret %s with its kubeconfig does not exist; see its condition KubeconfigAvailable", ErrNotReachable, key)
	case err != nil:
		return nil, kube.Named(err, "get", "Secret", key.Namespace, key.Name)
	case !isControlled(&secret, cluster):
		return nil, fmt.Errorf("%w: the Secret %s belongs to another object; see its condition KubeconfigAvailable", ErrNotReachable, key)
	}
	access, err := kubeconfig.Parse(secret.Data[v1alpha1.SecretKey])
	if err != nil {
		return nil, fmt.Errorf("%w: the kubeconfig in the Secret %s cannot be used: %w", ErrNotReachable, key, err)
	}
	return access.Config, nil
}
