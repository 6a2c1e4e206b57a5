package cluster

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// act executes the plan. An error with one child does not prevent the other actions.
func (r *Reconciler) act(ctx context.Context, cluster *v1alpha1.Cluster, seen observation, p *plan) error {
	if p.operation != "" {
		if err := r.checkLive(ctx, cluster); err != nil {
			return err
		}
	}
	switch p.action {
	case apply:
		request := newRequest(cluster)
		request.Snapshot, request.Stop, request.Idle = seen.snapshot, seen.stop.wanted, seen.stop.idle
		if wantsRestore(seen) {
			request.Restore = seen.restore.request
		}
		var err error
		if request.ManagementClusterUID, err = r.managementClusterUID(ctx); err != nil {
			return err
		}
		if err := r.Engines[seen.engine].Apply(ctx, request); err != nil {
			return &engineError{err}
		}
		if p.operation != "" {
			log.FromContext(ctx).Info("Started an operation", "operation", p.operation, "engine", seen.engine, "attempt", p.attempts)
		}
	case remove:
		if err := r.Engines[seen.engine].Delete(ctx, newRequest(cluster)); err != nil {
			return &engineError{err}
		}
	case expire:
		return r.expire(ctx, cluster)
	case release:
		return r.release(ctx, cluster, seen)
	case giveUp:
		return r.giveUp(ctx, cluster, seen)
	}
	return errors.Join(r.actOnSecret(ctx, cluster, seen, p), r.actOnKubeconfig(ctx, cluster, seen, p), r.actOnUsers(ctx, cluster, seen, p),
		r.actOnPrevious(ctx, cluster, seen, p), r.actOnSchedule(ctx, cluster, seen, p))
}

// checkLive compares the cached Cluster with the API server before an operation starts. A stale cache may have a Cluster without
// a finalizer on the server; whatever an operation creates for it would leak.
func (r *Reconciler) checkLive(ctx context.Context, cluster *v1alpha1.Cluster) error {
	var now v1alpha1.Cluster
	return kube.CheckLive(ctx, r.Live, kind.Kind, cluster, &now, func() bool { return !hasFinalizer(&now) || now.Generation != cluster.Generation })
}

// engineError is an error of Apply or Delete of an engine.
type engineError struct{ error }

func (e *engineError) Unwrap() error { return e.error }

// childError is an error of a write of a child.
type childError struct {
	error
	name string
}

func (e *childError) Unwrap() error { return e.error }

// expire deletes a Cluster whose time is over. The precondition protects a Cluster that was changed since it was read.
func (r *Reconciler) expire(ctx context.Context, cluster *v1alpha1.Cluster) error {
	preconditions := client.Preconditions{UID: &cluster.UID, ResourceVersion: &cluster.ResourceVersion}
	if err := r.Client.Delete(ctx, cluster, preconditions); err != nil {
		return kube.Named(client.IgnoreNotFound(err), "delete", kind.Kind, "", cluster.Name)
	}
	log.FromContext(ctx).Info("Deleted a Cluster after spec.expiresAfter")
	r.Events.Normal(cluster, v1alpha1.ReasonExpired, "Expire", fmt.Sprintf("The Cluster is deleted %s after its creation: spec.expiresAfter", cluster.Spec.ExpiresAfter.Duration))
	return nil
}

// release removes the finalizer of a Cluster after nothing is left of the cluster.
func (r *Reconciler) release(ctx context.Context, cluster *v1alpha1.Cluster, seen observation) error {
	if err := r.removeChildren(ctx, cluster, seen); err != nil {
		return err
	}
	if engine := r.Engines[seen.engine]; engine != nil {
		if err := engine.Abandon(ctx, newRequest(cluster)); err != nil {
			return &engineError{err}
		}
	}
	if held, err := r.removeFinalizer(ctx, cluster); err != nil || !held {
		return err // a stale cache: the finalizer was removed, and events recorded, before
	}
	for _, note := range seen.outside.Notes {
		r.Events.Warning(cluster, v1alpha1.ReasonMayBeDirty, "Delete", note)
	}
	r.metrics.deleted(cluster, seen.engine, r.Clock.Now())
	log.FromContext(ctx).Info("Deleted the cluster")
	r.Events.Normal(cluster, v1alpha1.ReasonDeleted, "Delete", "The cluster was removed completely")
	return nil
}

// giveUp removes the finalizer of a Cluster although something of the cluster is left, as the user requested.
func (r *Reconciler) giveUp(ctx context.Context, cluster *v1alpha1.Cluster, seen observation) error {
	left := waitingFor(seen)
	if engine := r.Engines[seen.engine]; engine != nil {
		if err := engine.Abandon(ctx, newRequest(cluster)); err != nil {
			log.FromContext(ctx).Error(err, "Failed to abandon the cluster; its finalizer is removed anyway")
		}
	}
	if err := r.removeChildren(ctx, cluster, seen); err != nil {
		return err
	}
	// Before the finalizer: afterwards nothing knows what is left.
	r.Events.Warning(cluster, v1alpha1.ReasonLeftBehind, "ForceDelete",
		fmt.Sprintf("Released because of the annotation %s, but something is left: %s", v1alpha1.AnnotationForceDelete, left))
	log.FromContext(ctx).Info("Released a Cluster whose cluster could not be removed", "left", left)
	_, err := r.removeFinalizer(ctx, cluster)
	return err
}

// removeFinalizer removes the finalizer. It returns false if the Cluster had none. On a conflict it reads the API server and not
// the cache: the engine has already deleted its records, so a new reconcile would start the removal again.
func (r *Reconciler) removeFinalizer(ctx context.Context, cluster *v1alpha1.Cluster) (held bool, err error) {
	r.Prober.Forget(cluster.UID)
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		var current v1alpha1.Cluster
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(cluster), &current); err != nil {
			return client.IgnoreNotFound(err)
		}
		if current.UID != cluster.UID || !hasFinalizer(&current) {
			return nil
		}
		changed := current.DeepCopy()
		controllerutil.RemoveFinalizer(changed, v1alpha1.Finalizer)
		controllerutil.RemoveFinalizer(changed, v1alpha1.LegacyFinalizer)
		patch := client.MergeFromWithOptions(&current, client.MergeFromWithOptimisticLock{})
		err := r.Client.Patch(ctx, changed, patch, client.FieldOwner(kube.FieldManager))
		held = err == nil
		return client.IgnoreNotFound(err)
	})
	return held, kube.Named(err, "remove the finalizer of", kind.Kind, "", cluster.Name)
}

// removeChildren deletes the Secret and the Kubeconfig if they belong to the Cluster. It reads the Kubeconfig from the API server,
// because a stale cache may lack one that was just created.
func (r *Reconciler) removeChildren(ctx context.Context, cluster *v1alpha1.Cluster, seen observation) error {
	errs := []error{r.removeUsers(ctx, cluster, seen)}
	if seen.secret != nil && isControlled(seen.secret, cluster) {
		errs = append(errs, kube.Named(kube.Delete(ctx, r.Client, seen.secret), "delete", "Secret", seen.secret.Namespace, seen.secret.Name))
	}
	var kubeconfig v1alpha1.Kubeconfig
	switch err := r.Live.Get(ctx, client.ObjectKeyFromObject(cluster), &kubeconfig); {
	case err == nil && isControlled(&kubeconfig, cluster):
		errs = append(errs, kube.Named(kube.Delete(ctx, r.Client, &kubeconfig), "delete", "Kubeconfig", "", cluster.Name))
	case client.IgnoreNotFound(err) != nil:
		errs = append(errs, kube.Named(err, "get", "Kubeconfig", "", cluster.Name))
	}
	return errors.Join(errs...)
}

func (r *Reconciler) actOnSecret(ctx context.Context, cluster *v1alpha1.Cluster, seen observation, p *plan) error {
	var err error
	switch p.secret {
	case childCreate:
		err = r.Client.Create(ctx, newSecret(cluster, seen), client.FieldOwner(kube.FieldManager))
	case childRepair, childRotate, childMove:
		secret := seen.secret.DeepCopy()
		adopt(secret, cluster)
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		secret.Data[v1alpha1.SecretKey] = seen.outside.Kubeconfig
		err = r.Client.Update(ctx, secret, client.FieldOwner(kube.FieldManager))
	case childReplace:
		if err = kube.Delete(ctx, r.Client, seen.secret); err == nil {
			err = r.Client.Create(ctx, newSecret(cluster, seen), client.FieldOwner(kube.FieldManager))
		}
	default:
		return nil
	}
	if err != nil {
		return r.childFailed(ctx, err, "Secret", seen.namespace, secretName(cluster.Name), &corev1.Secret{}, cluster)
	}
	switch {
	case p.secret == childRotate:
		r.Events.Normal(cluster, v1alpha1.ReasonKubeconfigRotated, "RotateKubeconfig", "The kubeconfig has a new client certificate; the old one is valid until it expires")
	case p.secret == childMove:
		r.Events.Normal(cluster, v1alpha1.ReasonEndpointChanged, "WriteKubeconfig",
			fmt.Sprintf("The API moved from %s to %s, and the kubeconfig was written again", cluster.Status.Endpoint, seen.outside.Endpoint))
	case p.secret != childCreate || cluster.Status.KubeconfigRef != nil:
		r.Events.Normal(cluster, v1alpha1.ReasonKubeconfigRepaired, "WriteKubeconfig", "The Secret with the kubeconfig was missing or modified, and was written again")
	}
	return nil
}

func (r *Reconciler) actOnKubeconfig(ctx context.Context, cluster *v1alpha1.Cluster, seen observation, p *plan) error {
	var err error
	switch p.kubeconfig {
	case childCreate:
		err = r.Client.Create(ctx, newKubeconfig(cluster, seen), client.FieldOwner(kube.FieldManager))
	case childRepair:
		changed := seen.kubeconfig.DeepCopy()
		adopt(changed, cluster)
		changed.Spec = newKubeconfig(cluster, seen).Spec
		err = r.Client.Update(ctx, changed, client.FieldOwner(kube.FieldManager))
	}
	if err != nil {
		return r.childFailed(ctx, err, "Kubeconfig", "", cluster.Name, &v1alpha1.Kubeconfig{}, cluster)
	}
	return nil
}

// childFailed wraps an error of a write of a child. After an AlreadyExists error it reads the object from the API server to find
// its owner.
func (r *Reconciler) childFailed(ctx context.Context, err error, kind, namespace, name string, found client.Object, cluster *v1alpha1.Cluster) error {
	if apierrors.IsAlreadyExists(err) {
		if getErr := r.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, found); client.IgnoreNotFound(getErr) != nil {
			err = getErr
		} else if getErr == nil && !isControlled(found, cluster) && notOwnedAction(found, cluster) == childBlocked {
			err = kube.ErrNotOwned
		}
	}
	return &childError{error: kube.Named(err, "write", kind, namespace, name), name: fmt.Sprintf("%s %q", kind, name)}
}
