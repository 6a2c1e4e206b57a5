package crontab

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// Ended returns the condition Complete or Failed with which a Job has ended, and when it did; nil if it has not.
func Ended(job *batchv1.Job) (*batchv1.JobCondition, time.Time) {
	for i := range job.Status.Conditions {
		condition := &job.Status.Conditions[i]
		switch {
		case condition.Status != corev1.ConditionTrue:
		case condition.Type == batchv1.JobComplete && job.Status.CompletionTime != nil:
			return condition, job.Status.CompletionTime.Time
		case condition.Type == batchv1.JobComplete, condition.Type == batchv1.JobFailed:
			return condition, condition.LastTransitionTime.Time
		}
	}
	return nil, time.Time{}
}

// ExitCode returns the exit code of the container of the Pods of a Job that failed last; nil if none has failed.
func ExitCode(pods []corev1.Pod) *int32 {
	var last *corev1.ContainerStateTerminated
	for i := range pods {
		pod := &pods[i]
		for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
			for i := range statuses {
				for _, ended := range []*corev1.ContainerStateTerminated{statuses[i].LastTerminationState.Terminated, statuses[i].State.Terminated} {
					if ended != nil && ended.ExitCode != 0 && (last == nil || !ended.FinishedAt.Before(&last.FinishedAt)) {
						last = ended
					}
				}
			}
		}
	}
	if last == nil {
		return nil
	}
	return &last.ExitCode
}
