package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// watchChildren enqueues the Cluster that owns a child, and the Cluster with the name of the child, which may wait for the name to
// become free.
func watchChildren() handler.EventHandler { return handler.EnqueueRequestsFromMapFunc(clustersOf) }

func clustersOf(_ context.Context, child client.Object) []reconcile.Request {
	requests := []reconcile.Request{}
	if _, isSecret := child.(*metav1.PartialObjectMetadata); !isSecret {
		requests = append(requests, request(child.GetName()))
	}
	for _, ref := range child.GetOwnerReferences() {
		// The original controller wrote references without an API group.
		version, err := schema.ParseGroupVersion(ref.APIVersion)
		if err == nil && ref.Kind == kind.Kind && (version.Group == kind.Group || version.Group == "") {
			requests = append(requests, request(ref.Name))
		}
	}
	return requests
}

func request(cluster string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Name: cluster}}
}

// newSecretCache returns a cache of the metadata of the Secrets with kubeconfigs. The manager needs their events, but not their
// content, and has no permission to read others.
func newSecretCache(mgr ctrl.Manager, namespace string) (cache.Cache, error) {
	isLabelled, err := labels.NewRequirement(v1alpha1.LabelClusterName, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	secrets, err := cache.New(mgr.GetConfig(), cache.Options{
		Scheme:                   mgr.GetScheme(),
		Mapper:                   mgr.GetRESTMapper(),
		HTTPClient:               mgr.GetHTTPClient(),
		DefaultWatchErrorHandler: kube.WatchFailed,
		ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: {
			Namespaces: map[string]cache.Config{namespace: {}},
			Label:      labels.NewSelector().Add(*isLabelled),
			Transform:  kube.StripManagedFields,
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("build the cache of Secrets: %w", err)
	}
	return secrets, mgr.Add(always{secrets})
}

// always is a cache that is started on every replica. A cache with options by namespace does not implement
// LeaderElectionRunnable, so the manager would start it on the leader only, and a standby replica would never be ready.
type always struct{ cache.Cache }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (always) NeedLeaderElection() bool { return false }

func watchSecrets(secrets cache.Cache) source.Source {
	var metadata metav1.PartialObjectMetadata
	metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return source.Kind(secrets, client.Object(&metadata), watchChildren())
}

// waker enqueues Clusters by name for engines and the prober.
type waker struct{ events chan event.GenericEvent }

// newWaker returns a waker with a large buffer, so that callers do not block.
func newWaker() *waker { return &waker{events: make(chan event.GenericEvent, 1024)} }

func (w *waker) wake(cluster string) {
	object := &v1alpha1.Cluster{}
	object.Name = cluster
	select {
	case w.events <- event.GenericEvent{Object: object}:
	default:
		// The buffer is full: the Cluster is reconciled when its RequeueAfter is over.
	}
}

func (w *waker) source() source.Source {
	return source.Channel(w.events, &handler.EnqueueRequestForObject{})
}
