package cluster

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/snapshots"
)

// action is the action on the cluster.
type action string

const (
	// keep: the cluster is as specified, or must not be changed.
	keep action = "keep"
	// apply: the engine applies the spec, or starts to supervise the cluster.
	apply action = "apply"
	// watch: an operation is in progress.
	watch action = "watch"
	// wait: an operation has failed, and the backoff is not over.
	wait action = "wait"
	// blocked: the engine reports an error that a user has to fix.
	blocked action = "blocked"
	// protected: the Cluster is being deleted, but spec.deletionProtection forbids it.
	protected action = "protected"
	// remove: the Cluster is being deleted, and the engine removes the cluster.
	remove action = "remove"
	// release: the Cluster is being deleted, and nothing of the cluster is left.
	release action = "release"
	// expire: the Cluster is deleted because of spec.expiresAfter.
	expire action = "expire"
	// giveUp: the Cluster is being deleted, and the deadline of the force-delete annotation has passed.
	giveUp action = "giveUp"
)

// plan is the result of decide.
type plan struct {
	// at is the time of the decision.
	at time.Time
	// action is the action on the cluster.
	action action
	// operation is the operation that apply or remove starts, empty if it continues one; attempts is its number of attempts.
	operation v1alpha1.OperationType
	attempts  int32
	// secret and kubeconfig are the actions on the Secret and the Kubeconfig.
	secret, kubeconfig childAction
	// users are the actions on the Secrets of users that differ. act sets usersReached when it executes them.
	users        []userPlan
	usersReached bool
	// previous is the action on the ClusterSnapshot of the state before a restore.
	previous snapshots.PreviousAction
	// schedule is the plan for spec.snapshots; nil without that field, and for a Cluster that is paused or being deleted.
	schedule *snapshots.Plan
	// again is the time until the next reconcile if there is no event; zero means never.
	again time.Duration
}

// childAction is the action on the Secret or the Kubeconfig.
type childAction string

const (
	// childKeep: the child is as specified, or its content is not known yet.
	childKeep childAction = "keep"
	// childCreate: the child does not exist.
	childCreate childAction = "create"
	// childRepair: the child differs.
	childRepair childAction = "repair"
	// childRotate: the child has an older certificate.
	childRotate childAction = "rotate"
	// childMove: the child has an older address of the API.
	childMove childAction = "move"
	// childReplace: the child differs in an immutable field.
	childReplace childAction = "replace"
	// childRemove: the Secret of a user that was removed from the spec.
	childRemove childAction = "remove"
	// childBlocked: the object has another owner.
	childBlocked childAction = "blocked"
	// childWait: the child is being deleted, or belongs to an earlier Cluster with this name.
	childWait childAction = "wait"
)

// decide returns the plan for a Cluster. It is a pure function of the observed state.
func decide(cluster *v1alpha1.Cluster, seen observation, now time.Time) plan {
	p := plan{at: now, action: keep, secret: childKeep, kubeconfig: childKeep, again: seen.outside.Poll}
	switch {
	case !cluster.DeletionTimestamp.IsZero():
		decideDeletion(cluster, seen, &p)
		return p
	case cluster.Spec.Paused:
		p.again = 0
		return p
	}
	if at, expires := expiresAt(cluster, now); expires && !cluster.Spec.DeletionProtection {
		if !now.Before(at) {
			p.action, p.again = expire, 0
			return p
		}
		p.again = sooner(p.again, untilNextExpiry(at, now))
	}
	if next := seen.stop.next; !next.IsZero() {
		p.again = sooner(p.again, next.Sub(now))
	}
	decideOutside(cluster, seen, &p)
	decideChildren(cluster, seen, &p)
	decideUsers(cluster, seen, &p)
	decideRestore(cluster, seen, &p)
	decideSchedule(cluster, seen, &p)
	return p
}

// decideOutside decides about a cluster that is not being deleted.
func decideOutside(cluster *v1alpha1.Cluster, seen observation, p *plan) {
	switch {
	case seen.err != nil:
		p.action, p.again = blocked, sooner(p.again, recheck)
	case seen.stop.wanted && seen.outside.Stopped && seen.outside.Listening == seen.stop.idle:
		p.action = keep
	case seen.stop.wanted && seen.outside.Stopped:
		p.action = apply // the engine listens at the address from now on, or no longer
	case isBusy(seen) && (!seen.stop.wanted || !seen.outside.Operation.Stale): // a stop does not wait for another operation
		p.action = watch
		if !seen.outside.Attended {
			p.action = apply // an earlier manager started it, and this one does not supervise it yet
		}
	case !seen.stop.wanted && seen.outside.Applied && seen.outside.Attended && !wantsRestore(seen):
		p.action = keep
	default:
		p.action, p.operation = apply, nextOperation(cluster, seen)
		p.attempts = 1
		if failed, at := lastFailure(cluster, seen); failed {
			p.attempts = attempts(cluster) + 1
			if pause := at.Add(kube.Backoff(attempts(cluster), longestBackoff)).Sub(p.at); pause > 0 {
				p.action, p.operation, p.again = wait, "", sooner(p.again, pause)
			}
		}
	}
}

// nextOperation returns the operation that an Apply starts, or "" if the cluster runs and Apply only supervises it.
func nextOperation(cluster *v1alpha1.Cluster, seen observation) v1alpha1.OperationType {
	switch {
	case seen.stop.wanted:
		return v1alpha1.OperationStop
	case wantsRestore(seen):
		return v1alpha1.OperationRestore
	case seen.outside.Applied && seen.outside.Running:
		return ""
	case seen.outside.Applied:
		return v1alpha1.OperationStart
	case newRequest(cluster).Applied == "":
		return v1alpha1.OperationProvision
	case cluster.Spec.Version != "" && cluster.Status.Version != "" && cluster.Spec.Version != cluster.Status.Version:
		return v1alpha1.OperationUpgrade
	case seen.engine != v1alpha1.EngineRKE && asksForRotation(cluster, seen):
		return v1alpha1.OperationRotate
	default:
		return v1alpha1.OperationUpdate
	}
}

// asksForRotation reports whether the Cluster requests a rotation of its credentials that was not done yet.
func asksForRotation(cluster *v1alpha1.Cluster, seen observation) bool {
	asked := newRequest(cluster).Rotation
	return asked != "" && asked != seen.outside.Rotated
}

// lastFailure reports whether and when the last operation for the current request failed. The status has the failures that an
// earlier manager observed.
func lastFailure(cluster *v1alpha1.Cluster, seen observation) (bool, time.Time) {
	last := cluster.Status.LastOperation
	if o := seen.outside.Operation; o != nil {
		return o.State == v1alpha1.OperationFailed && !o.Stale, o.Ended
	}
	if last == nil || last.State != v1alpha1.OperationFailed || cluster.Status.ObservedGeneration != cluster.Generation {
		return false, time.Time{}
	}
	return true, last.LastUpdateTime.Time
}

// attempts returns the number of attempts of the last operation.
func attempts(cluster *v1alpha1.Cluster) int32 {
	if cluster.Status.LastOperation == nil {
		return 1
	}
	return max(1, cluster.Status.LastOperation.Attempts)
}

// expiresAt returns the time at which spec.expiresAfter deletes the Cluster: never earlier than ExpiryNotice after that was announced. The
// time may have passed already when the field is set, when a Cluster is no longer paused or protected, or when the manager was away.
func expiresAt(cluster *v1alpha1.Cluster, now time.Time) (time.Time, bool) {
	if cluster.Spec.ExpiresAfter == nil {
		return time.Time{}, false
	}
	at, announced := cluster.CreationTimestamp.Add(cluster.Spec.ExpiresAfter.Duration), now
	if cluster.Spec.DeletionProtection || cluster.Spec.Paused {
		return at, true // nothing is announced
	}
	if is := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionExpiring); is != nil && is.Status == metav1.ConditionTrue {
		announced = is.LastTransitionTime.Time
	}
	if earliest := announced.Add(v1alpha1.ExpiryNotice); at.Before(earliest) {
		at = earliest
	}
	return at, true
}

// untilNextExpiry returns the time until the announcement of the deletion at a later time, or until the deletion.
func untilNextExpiry(at, now time.Time) time.Duration {
	if notice := at.Add(-v1alpha1.ExpiryNotice); now.Before(notice) {
		return notice.Sub(now)
	}
	return at.Sub(now)
}

// decideDeletion decides about a Cluster that is being deleted.
func decideDeletion(cluster *v1alpha1.Cluster, seen observation, p *plan) {
	operation := seen.outside.Operation
	deadline, forced := forceDeleteAt(cluster)
	switch {
	case !hasFinalizer(cluster):
		p.action, p.again = keep, 0 // other finalizers may remain
	case cluster.Spec.DeletionProtection:
		p.action, p.again = protected, 0
	case cluster.Spec.Paused && (!forced || p.at.Before(deadline)):
		p.action, p.again = keep, 0
	case seen.err == nil && !seen.outside.Exists:
		p.action, p.again = release, 0
	case forced && !p.at.Before(deadline):
		p.action = giveUp
	case seen.err != nil:
		p.action, p.again = blocked, recheck
	case operation != nil && operation.Delete && operation.State == v1alpha1.OperationProcessing:
		p.action = watch
		if !seen.outside.Attended {
			p.action = remove
		}
	default:
		p.action, p.operation, p.attempts = remove, v1alpha1.OperationDelete, 1
		if failed, at := lastDeletionFailure(cluster, seen); failed {
			p.attempts = attempts(cluster) + 1
			if pause := at.Add(kube.Backoff(attempts(cluster), longestBackoff)).Sub(p.at); pause > 0 {
				p.action, p.operation, p.again = wait, "", sooner(p.again, pause)
			}
		}
	}
	if forced && p.at.Before(deadline) && hasFinalizer(cluster) && p.action != release && p.action != protected {
		p.again = sooner(p.again, deadline.Sub(p.at))
	}
}

// lastDeletionFailure is lastFailure for the removal of a cluster.
func lastDeletionFailure(cluster *v1alpha1.Cluster, seen observation) (bool, time.Time) {
	if o := seen.outside.Operation; o != nil && o.Delete {
		return o.State == v1alpha1.OperationFailed, o.Ended
	}
	last := cluster.Status.LastOperation
	if last == nil || last.Type != v1alpha1.OperationDelete || last.State != v1alpha1.OperationFailed {
		return false, time.Time{}
	}
	return true, last.LastUpdateTime.Time
}

// forceDeleteAt returns the deadline after which the finalizer of a deleted Cluster is removed even if something is left.
func forceDeleteAt(cluster *v1alpha1.Cluster) (time.Time, bool) {
	value, found := cluster.Annotations[v1alpha1.AnnotationForceDelete]
	if !found || value == "false" || cluster.DeletionTimestamp.IsZero() {
		return time.Time{}, false
	}
	after, err := time.ParseDuration(value)
	if err != nil || after < 0 {
		after = v1alpha1.DefaultForceDeleteAfter
	}
	return cluster.DeletionTimestamp.Add(after), true
}

func hasFinalizer(cluster *v1alpha1.Cluster) bool {
	return slices.Contains(cluster.Finalizers, v1alpha1.Finalizer) || slices.Contains(cluster.Finalizers, v1alpha1.LegacyFinalizer)
}

// sooner returns the shorter of two durations, where zero means never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// decideChildren decides about the Secret and the Kubeconfig as soon as their content is known.
func decideChildren(cluster *v1alpha1.Cluster, seen observation, p *plan) {
	if seen.err != nil || seen.invalid != nil || len(seen.outside.Kubeconfig) == 0 && seen.outside.KubeconfigPath == "" {
		return
	}
	if len(seen.outside.Kubeconfig) > 0 {
		p.secret = decideSecret(cluster, seen)
	}
	p.kubeconfig = decideKubeconfig(cluster, seen)
}

func decideSecret(cluster *v1alpha1.Cluster, seen observation) childAction {
	secret := seen.secret
	switch {
	case secret == nil:
		return childCreate
	case !isControlled(secret, cluster):
		return notOwnedAction(secret, cluster)
	case !secret.DeletionTimestamp.IsZero():
		return childWait
	case secret.Type != v1alpha1.SecretTypeKubeconfig || secret.Immutable != nil && *secret.Immutable:
		return childReplace
	case isSecretGood(secret, cluster, seen):
		return childKeep
	}
	return updateOf(secret.Data[v1alpha1.SecretKey], seen.outside.Kubeconfig, cluster.Status.Endpoint)
}

func decideKubeconfig(cluster *v1alpha1.Cluster, seen observation) childAction {
	kubeconfig := seen.kubeconfig
	switch {
	case kubeconfig == nil:
		return childCreate
	case !isControlled(kubeconfig, cluster):
		return notOwnedAction(kubeconfig, cluster)
	case !kubeconfig.DeletionTimestamp.IsZero():
		return childWait
	case isKubeconfigGood(kubeconfig, cluster, seen):
		return childKeep
	default:
		return childRepair
	}
}
