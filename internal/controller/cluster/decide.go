package cluster

import (
	"time"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// action is what is to be done about the cluster.
type action string

const (
	// keep: it is as it should be, or nothing may be done.
	keep action = "keep"
	// apply: the engine is to make it what the spec asks for, or to look after it.
	apply action = "apply"
	// watch: an operation is under way.
	watch action = "watch"
	// wait: an operation has failed, and the pause before the next attempt is not over.
	wait action = "wait"
	// blocked: the engine says that somebody has to do something first.
	blocked action = "blocked"
	// protected: it is being deleted, and spec.deletionProtection forbids it.
	protected action = "protected"
	// remove: it is being deleted, and the engine is to remove it.
	remove action = "remove"
	// release: it is being deleted, and nothing is left.
	release action = "release"
	// giveUp: it is being deleted, and the deadline of the force-delete annotation is over.
	giveUp action = "giveUp"
)

// plan is what to do.
type plan struct {
	// at is when it was made.
	at time.Time
	// action is about the cluster.
	action action
	// operation is what apply or remove begins, empty if it only goes on; attempts counts it.
	operation v1alpha1.OperationType
	attempts  int32
	// secret and kubeconfig are about the Secret and the Kubeconfig.
	secret, kubeconfig childAction
	// annotation is the version to annotate the Cluster with; empty if that is as it should be.
	annotation string
	// again is when to look again if nothing happens; zero means never.
	again time.Duration
}

// childAction is what is to be done about the Secret or the Kubeconfig.
type childAction string

const (
	// childKeep: it is as it should be, or nothing can be said about it yet.
	childKeep childAction = "keep"
	// childCreate: there is none.
	childCreate childAction = "create"
	// childRepair: it is ours and differs.
	childRepair childAction = "repair"
	// childRotate: it is ours and has an older certificate.
	childRotate childAction = "rotate"
	// childReplace: it is ours and differs in what cannot be changed.
	childReplace childAction = "replace"
	// childBlocked: it belongs to someone else.
	childBlocked childAction = "blocked"
	// childWait: it is being deleted, or belongs to an earlier Cluster of this name.
	childWait childAction = "wait"
)

// decide returns what is to be done for a Cluster, given what there is.
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
	decideOutside(cluster, seen, &p)
	decideChildren(cluster, seen, &p)
	if seen.probe != nil && seen.probe.Version != "" && cluster.Annotations[v1alpha1.AnnotationVersion] != seen.probe.Version {
		p.annotation = seen.probe.Version
	}
	return p
}

// decideOutside is about a cluster that is to be there.
func decideOutside(cluster *v1alpha1.Cluster, seen observation, p *plan) {
	operation := seen.outside.Operation
	switch {
	case seen.err != nil:
		p.action, p.again = blocked, recheck
	case operation != nil && operation.State == v1alpha1.OperationProcessing:
		p.action = watch
		if !seen.outside.Attended {
			p.action = apply // it was begun by an earlier manager, and nobody watches it
		}
	case seen.outside.Applied && seen.outside.Attended:
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

// nextOperation names what an Apply begins; nothing if the cluster runs and only has to be looked after.
func nextOperation(cluster *v1alpha1.Cluster, seen observation) v1alpha1.OperationType {
	switch {
	case seen.outside.Applied && seen.outside.Running:
		return ""
	case seen.outside.Applied:
		return v1alpha1.OperationStart
	case newRequest(cluster).Applied == "":
		return v1alpha1.OperationProvision
	case cluster.Status.ObservedGeneration == cluster.Generation && seen.engine == v1alpha1.EngineLocal && asksForRotation(cluster, seen):
		return v1alpha1.OperationRotate
	case cluster.Spec.Version != "" && cluster.Status.Version != "" && cluster.Spec.Version != cluster.Status.Version:
		return v1alpha1.OperationUpgrade
	default:
		return v1alpha1.OperationUpdate
	}
}

// asksForRotation tells whether credentials are asked for that are not the present ones.
func asksForRotation(cluster *v1alpha1.Cluster, seen observation) bool {
	asked := newRequest(cluster).Rotation
	return asked != "" && asked != seen.outside.Rotated
}

// lastFailure tells whether the last operation for the present request has failed, and when. Of an operation that an
// earlier manager has seen failing, the status tells.
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

// attempts is how often the last operation was tried.
func attempts(cluster *v1alpha1.Cluster) int32 {
	if cluster.Status.LastOperation == nil {
		return 1
	}
	return max(1, cluster.Status.LastOperation.Attempts)
}

// decideDeletion is about a cluster that is to go.
func decideDeletion(cluster *v1alpha1.Cluster, seen observation, p *plan) {
	operation := seen.outside.Operation
	deadline, forced := forceDeleteAt(cluster)
	switch {
	case !hasFinalizer(cluster):
		p.action, p.again = keep, 0 // others may still have theirs
	case cluster.Spec.DeletionProtection:
		p.action, p.again = protected, 0
	case cluster.Spec.Paused:
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
	if forced && p.action != release && p.action != giveUp && p.action != protected {
		p.again = sooner(p.again, max(time.Millisecond, deadline.Sub(p.at)))
	}
}

// lastDeletionFailure is lastFailure for a removal.
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

// forceDeleteAt returns when a Cluster that is being deleted is to be let go whatever is left, if it is.
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
	for _, f := range cluster.Finalizers {
		if f == v1alpha1.Finalizer || f == v1alpha1.LegacyFinalizer {
			return true
		}
	}
	return false
}

// sooner returns the shorter of two pauses, of which zero means never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// decideChildren is about the Secret and the Kubeconfig, as soon as there is something to say in them.
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
	case !isOurs(secret, cluster):
		return notOwnedAction(secret, cluster)
	case !secret.DeletionTimestamp.IsZero():
		return childWait
	case secret.Type != v1alpha1.SecretTypeKubeconfig || secret.Immutable != nil && *secret.Immutable:
		return childReplace
	case isSecretGood(secret, cluster, seen):
		return childKeep
	case isRotation(secret.Data[v1alpha1.SecretKey], seen.outside.Kubeconfig):
		return childRotate
	default:
		return childRepair
	}
}

func decideKubeconfig(cluster *v1alpha1.Cluster, seen observation) childAction {
	kubeconfig := seen.kubeconfig
	switch {
	case kubeconfig == nil:
		return childCreate
	case !isOurs(kubeconfig, cluster):
		return notOwnedAction(kubeconfig, cluster)
	case !kubeconfig.DeletionTimestamp.IsZero():
		return childWait
	case isKubeconfigGood(kubeconfig, cluster, seen):
		return childKeep
	default:
		return childRepair
	}
}
