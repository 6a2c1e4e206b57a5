// Package hosted is the engine that runs the control planes of clusters as Pods of the cluster that stores the Clusters.
//
// Everything about a control plane is in objects of the namespace that its Cluster names, so any replica of a manager continues where
// another one has ended: a Secret has its keys, certificates and kubeconfigs, a StatefulSet its etcd, and a Deployment the rest. Their
// names and labels contain the UID of the Cluster. The annotation with the hash of the applied spec says what they were made from, and
// their statuses say whether that has been rolled out. The engine keeps nothing in memory but which Clusters it has applied.
package hosted

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/engine/etcdsnapshot"
	"github.com/keelson-dev/keelson/internal/kube"
)

// Options configure an Engine.
type Options struct {
	// Config is the configuration of the API server whose cluster runs the Pods.
	Config *rest.Config
	// Images are the images of keelson-kube by Kubernetes version. If empty, the engine accepts no clusters.
	Images map[string]string
	// Snapshots are those from which clusters are restored.
	Snapshots etcdsnapshot.Dir
	// Clock is the clock for certificates. Nil means the real clock.
	Clock clock.PassiveClock
	// Log is the logger. The zero value discards all messages.
	Log logr.Logger
}

// poll is the interval of observations while Pods start or end.
const poll = time.Second

// Engine implements cluster.Engine.
type Engine struct {
	opts    Options
	client  client.Client
	changed func(string)

	calls sync.WaitGroup
	// ctx is that of what runs in the background.
	ctx    context.Context
	cancel context.CancelFunc

	mu sync.Mutex
	// closed is true after Close.
	closed bool
	// applied has the desire.key of the last Apply of each Cluster, by its UID.
	applied map[types.UID]string
	// accepted has the CAs of users that an API has accepted since the manager has started.
	accepted map[acceptedKey]bool
	// attempts has the restores of this manager, by the UID of the Cluster.
	attempts map[types.UID]attempt
}

// New returns an engine. It starts nothing.
func New(opts Options) (*Engine, error) {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), networkingv1.AddToScheme(scheme), policyv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	api, err := client.New(opts.Config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	e := &Engine{
		opts: opts, client: api, changed: func(string) {},
		applied: map[types.UID]string{}, accepted: map[acceptedKey]bool{}, attempts: map[types.UID]attempt{},
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e, nil
}

// Notify implements cluster.Engine.
func (e *Engine) Notify(changed func(string)) { e.changed = changed }

// enter starts a call that changes something. Close waits for its end. The error is ErrStopping after Close.
func (e *Engine) enter() (leave func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, cluster.ErrStopping
	}
	e.calls.Add(1)
	return e.calls.Done, nil
}

// setApplied remembers the key of an Apply; empty if it is not complete.
func (e *Engine) setApplied(uid types.UID, key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.applied[uid] = key
}

// forget forgets a Cluster.
func (e *Engine) forget(uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.applied, uid)
	delete(e.attempts, uid)
	maps.DeleteFunc(e.accepted, func(key acceptedKey, _ bool) bool { return key.uid == uid })
}

func (e *Engine) isApplied(uid types.UID, key string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return key != "" && e.applied[uid] == key
}

// +kubebuilder:rbac:groups="",resources=pods,verbs=list;patch
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=list;delete
// +kubebuilder:rbac:groups="",resources=services;secrets,verbs=get;list;create;patch;delete
// +kubebuilder:rbac:groups=apps,resources=deployments;statefulsets,verbs=get;list;create;patch;delete
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=list;create;patch;delete
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=list;create;patch;delete

// Apply implements cluster.Engine. It takes a few requests: the rest is done by the controllers of Kubernetes.
func (e *Engine) Apply(ctx context.Context, r cluster.Request) error {
	leave, err := e.enter()
	if err != nil {
		return err
	}
	defer leave()
	if !r.Stop && e.attempt(r.UID).runs {
		return nil // the Secret found now would hide that the restore is done
	}
	here := placeOf(r)
	found, err := e.find(ctx, here)
	if err != nil {
		return err
	}
	if r.Stop {
		return e.scaleDown(ctx, found, r.UID)
	}
	if found.secret == nil && r.Applied != "" {
		return here.stateMissing()
	}
	wanted, err := e.newDesire(r)
	if err != nil {
		return err
	}
	if found.etcd != nil {
		if err := cluster.CheckUpgrade(found.etcd.Annotations[annotationVersion], wanted.spec.Version); err != nil {
			return err
		}
	}
	last, err := found.restored()
	if found.secret == nil && r.Spec.From != nil {
		last, err = e.fork(ctx, r, wanted)
	}
	if err != nil {
		return err
	}
	wanted.services = last.services()
	restoring, err := e.nextRestore(ctx, last, r, wanted)
	if err != nil {
		e.refuse(r, err)
		e.changed(r.Name)
		return nil // it is observed
	}
	return e.applyAll(ctx, here, found, wanted, restoring)
}

// applyAll applies the objects of a cluster.
func (e *Engine) applyAll(ctx context.Context, here place, found found, wanted desire, restoring restore) error {
	address, err := e.applyService(ctx, here)
	if err != nil {
		return err
	}
	secret, err := here.newSecret(found.secret, wanted, address, e.opts.Clock.Now())
	if err != nil {
		return fmt.Errorf("the Secret %s: %w", here, err)
	}
	if err := data(secret.Data).setRestore(restoring); err != nil {
		return err
	}
	hash, _, err := wanted.describe(secret.Data[hashKey])
	if err != nil {
		return err
	}
	if restoring.isPending() {
		wanted.apiServers = 0
	}
	objects := append([]client.Object{secret}, here.objects(wanted, hash)...)
	for _, object := range objects {
		if err := e.apply(ctx, object); err != nil {
			return err
		}
	}
	if err := e.tellPods(ctx, found.pods, secret.Data[clientsKey]); err != nil {
		return err
	}
	e.setApplied(here.uid, hash)
	if restoring.isPending() {
		e.continueRestore(here, found, restoring)
		return nil
	}
	e.changed(here.cluster)
	e.opts.Log.Info("Applied a control plane", "Cluster", here.cluster, "namespace", here.namespace, "name", here.name)
	return nil
}

// applyService applies the Service of the API, and returns its address. It comes first: certificates contain the address.
func (e *Engine) applyService(ctx context.Context, here place) (address string, err error) {
	service := here.service()
	if err := e.apply(ctx, service); err != nil {
		return "", err
	}
	if service.Spec.ClusterIP == "" {
		return "", fmt.Errorf("the Service %s has no address yet", here)
	}
	return service.Spec.ClusterIP, nil
}

// fieldOwner owns the fields that the engine applies.
const fieldOwner = client.FieldOwner("keelson-hosted")

// apply creates or changes an object, which then has what the API server returned.
func (e *Engine) apply(ctx context.Context, object client.Object) error {
	kinds, _, err := e.client.Scheme().ObjectKinds(object)
	if err != nil {
		return err
	}
	object.GetObjectKind().SetGroupVersionKind(kinds[0])
	err = e.client.Patch(ctx, object, client.Apply, fieldOwner, client.ForceOwnership) //nolint:staticcheck // typed objects, without generated apply configurations
	return explain(err, "apply", kinds[0].Kind, object)
}

// explain adds to an error of the API server what it was about, and for a user what to do.
func explain(err error, doing, kind string, object client.Object) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: %s: bind the ClusterRole keelson-hosted to the manager in the namespace %s", cluster.ErrUnavailable, kube.APIWords(err), object.GetNamespace())
	case apierrors.IsNotFound(err) && doing == "apply":
		return fmt.Errorf("%w: the namespace %s of spec.hosted.namespace does not exist: create it", cluster.ErrUnavailable, object.GetNamespace())
	}
	return kube.Named(err, doing, kind, object.GetNamespace(), object.GetName())
}

// scaleDown ends the Pods of a cluster, and keeps its data. API servers need etcd to end: as long as some are left, only they are scaled
// down, and the cluster is not observed as attended, so that Apply is repeated.
func (e *Engine) scaleDown(ctx context.Context, found found, uid types.UID) error {
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))
	e.setApplied(uid, "")
	if found.deployment != nil {
		if err := e.client.Patch(ctx, found.deployment, patch, fieldOwner); client.IgnoreNotFound(err) != nil {
			return explain(err, "stop", "Deployment", found.deployment)
		}
		if found.deployment.Status.Replicas > 0 {
			return nil
		}
	}
	if found.etcd != nil {
		if err := e.client.Patch(ctx, found.etcd, patch, fieldOwner); client.IgnoreNotFound(err) != nil {
			return explain(err, "stop", "StatefulSet", found.etcd)
		}
	}
	e.setApplied(uid, stopKey)
	return nil
}

// Delete implements cluster.Engine. The Secret goes last: as long as it is there, something may be left.
func (e *Engine) Delete(ctx context.Context, r cluster.Request) error {
	leave, err := e.enter()
	if err != nil {
		return err
	}
	defer leave()
	here := placeOf(r)
	e.forget(r.UID)
	left, err := e.left(ctx, here)
	if err != nil {
		return err
	}
	// An API server that has lost its etcd does not end in time.
	hasAPI := slices.ContainsFunc(left, func(o metav1.PartialObjectMetadata) bool {
		return o.Kind == "Pod" && o.Labels[labelComponent] == componentAPI
	})
	for i := range left {
		object := &left[i]
		switch {
		case object.Kind == "Pod", object.Kind == "StatefulSet" && hasAPI, object.Kind == "Secret" && len(left) > 1:
			continue // Pods end with what controls them
		}
		if err := e.client.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground)); client.IgnoreNotFound(err) != nil {
			return explain(err, "delete", object.Kind, object)
		}
	}
	return nil
}

// kinds are those of the objects of a cluster.
var kinds = []schema.GroupVersionKind{
	appsv1.SchemeGroupVersion.WithKind("Deployment"), appsv1.SchemeGroupVersion.WithKind("StatefulSet"), corev1.SchemeGroupVersion.WithKind("Service"),
	networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"), policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"),
	corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithKind("Secret"),
}

// left returns all objects of a cluster.
func (e *Engine) left(ctx context.Context, here place) (all []metav1.PartialObjectMetadata, err error) {
	for _, kind := range kinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		if err := e.client.List(ctx, list, client.InNamespace(here.namespace), here.selected()); err != nil {
			about := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: here.namespace}}
			return nil, explain(err, "list", kind.Kind, about)
		}
		for _, object := range list.Items {
			object.SetGroupVersionKind(kind)
			all = append(all, object)
		}
	}
	return all, nil
}

// Abandon implements cluster.Engine.
func (e *Engine) Abandon(_ context.Context, r cluster.Request) error {
	e.forget(r.UID)
	return nil
}

// Close implements cluster.Engine.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.cancel()
	e.calls.Wait()
	return nil
}
