package sampleresource

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	samplev1 "github.com/keelson-dev/keelson/api/sample/v1"
	"github.com/keelson-dev/keelson/internal/kube"
)

const (
	// stuckAfter is the time after the grace period at which a Pod that is being deleted
	// counts as stuck, because its node does not respond. A Pod with another name then
	// replaces it. The stuck Pod is never force-deleted: its containers may still run.
	stuckAfter = 30 * time.Second

	// longestBackoff is the maximum backoff after a failure.
	longestBackoff = 300 * time.Second
)

// action is the action on the Pod of a SampleResource.
type action string

const (
	// keep: the Pod is as specified.
	keep action = "keep"
	// create: the Pod does not exist.
	create action = "create"
	// changeImage: the Pod runs another image.
	changeImage action = "changeImage"
	// countFailure: the Pod has failed. The failure is written to the status before any
	// action, so that it counts exactly once.
	countFailure action = "countFailure"
	// pause: the Pod has failed, or was deleted after a failure, and the backoff is not
	// over.
	pause action = "pause"
	// replace: the Pod has failed and the backoff is over. It is deleted, and the delete
	// event triggers the creation of a new one.
	replace action = "replace"
	// waitForDeletion: the Pod is being deleted.
	waitForDeletion action = "waitForDeletion"
	// waitForCollection: the Pod belongs to an earlier SampleResource with this name, and
	// the garbage collector will delete it.
	waitForCollection action = "waitForCollection"
	// blocked: a Pod with that name exists and has another owner.
	blocked action = "blocked"
)

// plan is the result of decide.
type plan struct {
	// at is the time of the decision.
	at time.Time
	// action is the action, and pod the Pod that it applies to, if any.
	action action
	pod    *corev1.Pod
	// name is the name of the Pod to create.
	name string
	// surplus are other Pods to delete.
	surplus []*corev1.Pod
	// due is the time of the next attempt after a failure.
	due time.Time
	// again is the time until the next reconcile if there is no event; zero means never.
	again time.Duration
}

// acts reports whether the plan writes or deletes the Pod.
func (p plan) acts() bool {
	return p.action == create || p.action == changeImage || p.action == replace
}

// pods are the owned Pods, each in one list, oldest first.
type pods struct {
	alive, failed, ending, misshapen []*corev1.Pod
	// firstStuck is when the first of the ending Pods counts as stuck. Pods that are stuck
	// already are in no list.
	firstStuck time.Time
}

func sortPods(owned []corev1.Pod, now time.Time) pods {
	var sorted pods
	for i := range owned {
		pod := &owned[i]
		switch {
		case !pod.DeletionTimestamp.IsZero():
			stuck := pod.DeletionTimestamp.Add(stuckAfter)
			if !now.Before(stuck) {
				continue
			}
			sorted.ending = append(sorted.ending, pod)
			if sorted.firstStuck.IsZero() || stuck.Before(sorted.firstStuck) {
				sorted.firstStuck = stuck
			}
		case podImage(pod) == "":
			sorted.misshapen = append(sorted.misshapen, pod)
		case hasFailed(pod):
			sorted.failed = append(sorted.failed, pod)
		default:
			sorted.alive = append(sorted.alive, pod)
		}
	}
	return sorted
}

// decide returns the plan for sample. It is a pure function of the observed state.
func decide(sample *samplev1.SampleResource, seen observation, now time.Time) plan {
	p := plan{at: now, due: nextAttempt(sample, now)}
	sorted := sortPods(seen.owned, now)
	p.surplus = sorted.misshapen
	switch {
	case len(sorted.alive) > 0:
		p.action, p.pod = keep, sorted.alive[0]
		if podImage(p.pod) != sample.Spec.PodImage {
			p.action = changeImage
		}
		p.surplus = append(append(p.surplus, sorted.alive[1:]...), sorted.failed...)
	case len(sorted.failed) > 0:
		p.decideFailed(sample, sorted.failed)
	case len(sorted.ending) > 0:
		p.action, p.pod = waitForDeletion, sorted.ending[0]
		p.again = sorted.firstStuck.Sub(now)
	case now.Before(p.due):
		p.action, p.again = pause, p.due.Sub(now)
	case seen.other == nil:
		p.action, p.name = create, seen.free
	case kube.IsLeftover(seen.other, sample, kind.GroupKind()):
		p.action = waitForCollection
	default:
		p.action = blocked
	}
	return p
}

// decideFailed sets the action on a failed Pod. The Pod is counted, and kept until the backoff
// is over so that users can read its logs.
func (p *plan) decideFailed(sample *samplev1.SampleResource, failed []*corev1.Pod) {
	p.pod = failed[len(failed)-1]
	p.surplus = append(p.surplus, failed[:len(failed)-1]...)
	switch {
	case sample.Status.LastFailedPodUID != p.pod.UID:
		p.action = countFailure
		p.due = p.at.Add(kube.Backoff(failuresSoFar(sample)+1, longestBackoff))
		p.again = p.due.Sub(p.at)
	case p.at.Before(p.due):
		p.action, p.again = pause, p.due.Sub(p.at)
	default:
		p.action = replace
	}
}

// failuresSoFar returns the number of consecutive failures with the current spec.
func failuresSoFar(sample *samplev1.SampleResource) int32 {
	if sample.Status.ObservedGeneration != sample.Generation {
		// A new image starts without a backoff.
		return 0
	}
	return sample.Status.ConsecutiveFailures
}

// nextAttempt returns when a Pod may be created: now, or after the backoff.
func nextAttempt(sample *samplev1.SampleResource, now time.Time) time.Time {
	failures := failuresSoFar(sample)
	if failures == 0 || sample.Status.LastFailureTime == nil {
		return now
	}
	return sample.Status.LastFailureTime.Add(kube.Backoff(failures, longestBackoff))
}
