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
)

// stuckAfter is how long a Job may have no ready Pod before its Pods are examined. The next
// examinations are after twice the time, four times the time, and so on.
const stuckAfter = time.Minute

// stuckCheck is the last examination of the Pods of an active run.
type stuckCheck struct {
	job string
	uid types.UID
	at  time.Time
	// cause is why the run is stuck; empty if it is not.
	cause string
}

// longestWaiting returns the active run that has been waiting longest for a ready Pod, or nil.
func longestWaiting(runs []run) *run {
	var longest *run
	for i := range runs {
		r := &runs[i]
		if r.phase == active && !r.deleting && !r.ready && !r.suspended && (longest == nil || r.startTime.Before(longest.startTime)) {
			longest = r
		}
	}
	return longest
}

// nextStuckCheck returns the first time after now at which the Pods of a run are examined; the
// first wait may not be zero.
func nextStuckCheck(r *run, wait time.Duration, now time.Time) time.Time {
	for !r.startTime.Add(wait).After(now) {
		wait *= 2
	}
	return r.startTime.Add(wait)
}

// observeStuck examines the Pods of the run that has been waiting longest for a ready one. It reads
// them from the API server: a watch of all Pods would cost more than all else that this controller
// does.
func (r *Reconciler) observeStuck(ctx context.Context, cronTab *stablev1.CronTab, st *state, runs []run, now time.Time) *stuckCheck {
	waiting := longestWaiting(runs)
	if waiting == nil || r.stuckAfter == 0 || now.Before(waiting.startTime.Add(r.stuckAfter)) {
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
	st.stuck = &stuckCheck{job: waiting.name, uid: waiting.uid, at: now, cause: stuckCause(pods)}
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
		pod := &pods[i]
		for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
			for _, container := range statuses {
				if waiting := container.State.Waiting; waiting != nil && isStuck(waiting.Reason) {
					return fmt.Sprintf("Container %q of Pod %q waits: %s, image %q", container.Name, pod.Name, settled(waiting.Reason), container.Image)
				}
			}
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
				return fmt.Sprintf("Pod %q is not scheduled: %s", pod.Name, condition.Message)
			}
		}
	}
	return ""
}

// isStuck reports whether a container with this reason to wait needs a user, or at least time.
func isStuck(reason string) bool {
	return reason != "" && reason != "ContainerCreating" && reason != "PodInitializing"
}

// settled returns one reason for two between which the kubelet alternates.
func settled(reason string) string {
	if reason == "ErrImagePull" {
		return "ImagePullBackOff"
	}
	return reason
}

// summarizeStuck returns the condition RunsStuck.
func summarizeStuck(namespace string, check *stuckCheck) metav1.Condition {
	if check == nil || check.cause == "" {
		return metav1.Condition{Type: stablev1.ConditionRunsStuck, Status: metav1.ConditionFalse,
			Reason: stablev1.ReasonNoRunStuck, Message: "No run waits for its Pods longer than usual"}
	}
	return metav1.Condition{Type: stablev1.ConditionRunsStuck, Status: metav1.ConditionTrue, Reason: stablev1.ReasonPodsNotReady,
		Message: fmt.Sprintf("Job %q has no ready Pod. %s. To see its events, run: kubectl describe pods --namespace %s --selector %s=%s",
			check.job, check.cause, namespace, batchv1.JobNameLabel, check.job)}
}
