package crontab

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// stuckAfter is how long a Job may have no ready Pod, or may be being deleted, before its Pods are
// examined. The next examinations are after twice the time, four times the time, and so on.
const stuckAfter = time.Minute

// stuckCheck is the last examination of the Pods of an active run.
type stuckCheck struct {
	job string
	uid types.UID
	at  time.Time
	// deleting means that the Job is being deleted.
	deleting bool
	// cause is why the run is stuck; empty if it is not.
	cause string
}

// waitingSince returns since when a run has been waiting: for a ready Pod, or for the end of its
// deletion; zero if it does not wait.
func (r *run) waitingSince() time.Time {
	switch {
	case r.deleting:
		return r.job.DeletionTimestamp.Time
	case r.phase == active && !r.ready && !r.suspended:
		return r.startTime
	}
	return time.Time{}
}

// longestWaiting returns the run that has been waiting longest, or nil.
func longestWaiting(runs []run) *run {
	var longest *run
	for i := range runs {
		r := &runs[i]
		if since := r.waitingSince(); !since.IsZero() && (longest == nil || since.Before(longest.waitingSince())) {
			longest = r
		}
	}
	return longest
}

// nextStuckCheck returns the first time after now at which a run that waits is examined; the first
// wait may not be zero.
func nextStuckCheck(r *run, wait time.Duration, now time.Time) time.Time {
	since := r.waitingSince()
	for !since.Add(wait).After(now) {
		wait *= 2
	}
	return since.Add(wait)
}

// observeStuck examines the Pods of the run that has been waiting longest. It reads them from the API server: a watch of all Pods would cost more than all else that this controller
// does.
func (r *Reconciler) observeStuck(ctx context.Context, cronTab *stablev1.CronTab, st *state, runs []run, now time.Time) *stuckCheck {
	waiting := longestWaiting(runs)
	if waiting == nil || r.stuckAfter == 0 || now.Before(waiting.waitingSince().Add(r.stuckAfter)) {
		st.stuck = nil
		return nil
	}
	if st.stuck != nil && st.stuck.uid == waiting.uid && now.Before(nextStuckCheck(waiting, r.stuckAfter, st.stuck.at)) {
		return st.stuck
	}
	pods, err := r.podsOf(ctx, cronTab.Namespace, waiting)
	if err != nil {
		log.FromContext(ctx).Info("Cannot read the Pods of a Job", "Job", waiting.name, "error", err.Error())
		return st.stuck
	}
	st.stuck = &stuckCheck{job: waiting.name, uid: waiting.uid, at: now, deleting: waiting.deleting}
	if waiting.deleting {
		st.stuck.cause = deletionCause(waiting.job, pods, now)
	} else {
		st.stuck.cause = stuckCause(pods)
	}
	return st.stuck
}

// podsOf reads the Pods of a Job from the API server.
func (r *Reconciler) podsOf(ctx context.Context, namespace string, job *run) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := r.live.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{batchv1.JobNameLabel: job.name}, client.Limit(maxPods))
	var pods []corev1.Pod
	for i := range list.Items {
		if owner := metav1.GetControllerOfNoCopy(&list.Items[i]); owner != nil && owner.UID == job.uid {
			pods = append(pods, list.Items[i])
		}
	}
	return pods, err
}

// maxPods limits how many Pods of a Job are read.
const maxPods = 100

// stuckCause returns why none of the Pods of a Job is ready; empty if they only take their time.
func stuckCause(pods []corev1.Pod) string {
	if len(pods) == 0 {
		return "It has no Pod; kubectl describe job has the reason"
	}
	for i := range pods {
		if problem := kube.PodProblem(&pods[i]); problem != "" {
			return problem
		}
	}
	return ""
}

// deletionCause returns what keeps a deleted Job from going away; empty if its Pods only take their
// time.
func deletionCause(job *batchv1.Job, pods []corev1.Pod, now time.Time) string {
	if held := foreignFinalizer(job.Finalizers); held != "" {
		return fmt.Sprintf("The finalizer %q holds it; remove that if nothing else will", held)
	}
	for i := range pods {
		// The deletion timestamp includes the grace period.
		switch pod := &pods[i]; {
		case pod.DeletionTimestamp == nil || now.Before(pod.DeletionTimestamp.Time):
		case foreignFinalizer(pod.Finalizers) != "":
			return fmt.Sprintf("The finalizer %q holds its Pod %q; remove that if nothing else will", foreignFinalizer(pod.Finalizers), pod.Name)
		default:
			return fmt.Sprintf("Its Pod %q does not end; check the node %q", pod.Name, pod.Spec.NodeName)
		}
	}
	if len(pods) == 0 {
		return "It has no Pod, and the garbage collector of Kubernetes has not removed it"
	}
	return ""
}

// foreignFinalizer returns the first finalizer that is not one of Kubernetes itself; empty if there
// is none.
func foreignFinalizer(finalizers []string) string {
	for _, name := range finalizers {
		if name != metav1.FinalizerDeleteDependents && name != metav1.FinalizerOrphanDependents && name != batchv1.JobTrackingFinalizer {
			return name
		}
	}
	return ""
}

// summarizeStuck returns the condition RunsStuck.
func summarizeStuck(namespace string, check *stuckCheck) metav1.Condition {
	if check == nil || check.cause == "" {
		return metav1.Condition{Type: stablev1.ConditionRunsStuck, Status: metav1.ConditionFalse,
			Reason: stablev1.ReasonNoRunStuck, Message: "No run waits for its Pods longer than usual"}
	}
	if check.deleting {
		return metav1.Condition{Type: stablev1.ConditionRunsStuck, Status: metav1.ConditionTrue, Reason: stablev1.ReasonJobNotDeleted,
			Message: fmt.Sprintf("Job %q is being deleted and counts toward concurrencyPolicy until it is gone. %s. To see it, run: kubectl get job --namespace %s %s --output yaml",
				check.job, check.cause, namespace, check.job)}
	}
	return metav1.Condition{Type: stablev1.ConditionRunsStuck, Status: metav1.ConditionTrue, Reason: stablev1.ReasonPodsNotReady,
		Message: fmt.Sprintf("Job %q has no ready Pod. %s. To see its events, run: kubectl describe pods --namespace %s --selector %s=%s",
			check.job, check.cause, namespace, batchv1.JobNameLabel, check.job)}
}
