package sampleresource

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	samplev1 "github.com/keelson-dev/keelson/api/sample/v1"
	"github.com/keelson-dev/keelson/internal/kube"
)

const (
	// stuckAfter is how long after its grace period a Pod that is being deleted may
	// still be there before it is given up: its node does not answer. A Pod of another
	// name takes over then. The Pod is never deleted by force, because its containers
	// may still run.
	stuckAfter = 30 * time.Second

	// longestBackoff is the longest pause between a failure and the next attempt.
	longestBackoff = 300 * time.Second
)

// action is what is to be done.
type action string

const (
	// keep: the Pod is as it should be.
	keep action = "keep"
	// create: there is none.
	create action = "create"
	// changeImage: the Pod runs another image.
	changeImage action = "changeImage"
	// countFailure: the Pod has failed. That is written down before anything is done
	// about it, so that it counts once, whatever happens.
	countFailure action = "countFailure"
	// pause: the Pod has failed, or is gone after it had, and the next attempt is not
	// due.
	pause action = "pause"
	// replace: the Pod has failed and the next attempt is due. It is deleted; the
	// event of that leads to a new one.
	replace action = "replace"
	// waitForDeletion: the Pod is being deleted.
	waitForDeletion action = "waitForDeletion"
	// waitForCollection: the Pod of that name belongs to an earlier SampleResource of
	// this name and is about to be deleted by the garbage collector.
	waitForCollection action = "waitForCollection"
	// blocked: the Pod of that name belongs to someone else.
	blocked action = "blocked"
)

// plan is what to do.
type plan struct {
	// at is when it was made.
	at time.Time
	// action is what to do, and pod the Pod that it is about, if there is one.
	action action
	pod    *corev1.Pod
	// name is the name of the Pod to create.
	name string
	// surplus are further Pods, to be deleted.
	surplus []*corev1.Pod
	// due is when the next attempt after a failure is made.
	due time.Time
	// again is when to look again if nothing happens; zero means never.
	again time.Duration
}

// acts reports whether the plan is to write or delete the Pod.
func (p plan) acts() bool {
	return p.action == create || p.action == changeImage || p.action == replace
}

// pods are the owned Pods, each in one list, the oldest first.
type pods struct {
	alive, failed, ending, misshapen []*corev1.Pod
	// firstStuck is when the first of those that are ending counts as stuck. Those that
	// are stuck already are in no list.
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

// decide returns what is to be done for sample, given what there is.
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

// decideFailed fills in what to do about a Pod that has failed: count it, and keep it
// until it is replaced, so that its logs can be read.
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

// failuresSoFar returns how many Pods in a row have failed with the present spec.
func failuresSoFar(sample *samplev1.SampleResource) int32 {
	if sample.Status.ObservedGeneration != sample.Generation {
		// A new image gets a new chance at once.
		return 0
	}
	return sample.Status.ConsecutiveFailures
}

// nextAttempt returns when a Pod may be created; not later than now if nothing failed.
func nextAttempt(sample *samplev1.SampleResource, now time.Time) time.Time {
	failures := failuresSoFar(sample)
	if failures == 0 || sample.Status.LastFailureTime == nil {
		return now
	}
	return sample.Status.LastFailureTime.Add(kube.Backoff(failures, longestBackoff))
}
