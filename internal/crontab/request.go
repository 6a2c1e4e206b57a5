package crontab

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/requests"
)

// NewRequest returns the value of spec.runRequestedAt that requests a run now.
func NewRequest(cronTab *stablev1.CronTab, now time.Time) metav1.Time {
	return requests.Next(now, cronTab.Spec.RunRequestedAt, cronTab.Status.LastRunRequestedAt)
}

// OpenRequest returns the time of the request whose run has not started yet; zero if there is none. A CronTab has one
// request at a time: another one would take its place.
func OpenRequest(cronTab *stablev1.CronTab) time.Time {
	at := requests.At(cronTab.Spec.RunRequestedAt)
	if at.Equal(ptr.Deref(cronTab.Status.LastRunRequestedAt, metav1.Time{}).Time) {
		return time.Time{}
	}
	return at
}

// Obstacle returns what keeps a requested run from starting, according to the status; empty if nothing does.
func Obstacle(cronTab *stablev1.CronTab) string {
	ready := meta.FindStatusCondition(cronTab.Status.Conditions, stablev1.ConditionReady)
	if ready != nil && ready.Status == metav1.ConditionFalse &&
		slices.Contains([]string{stablev1.ReasonJobNameTaken, stablev1.ReasonJobRejected, stablev1.ReasonInvalidParameters, stablev1.ReasonJobWriteFailed}, ready.Reason) {
		return ready.Message
	}
	var all []string
	limit := ConcurrencyLimit(&cronTab.Spec)
	if limit > 0 && len(cronTab.Status.Active) >= limit {
		var jobs []string
		for _, job := range cronTab.Status.Active {
			jobs = append(jobs, job.Name)
		}
		all = append(all, fmt.Sprintf("The limit of concurrencyPolicy %s is reached, %d active at a time: %s",
			cronTab.Spec.ConcurrencyPolicy, limit, strings.Join(jobs, ", ")))
	}
	if stuck := meta.FindStatusCondition(cronTab.Status.Conditions, stablev1.ConditionRunsStuck); limit > 0 && stuck != nil && stuck.Status == metav1.ConditionTrue {
		all = append(all, stuck.Message)
	}
	return strings.Join(all, ". ")
}

// ConcurrencyLimit returns the maximum number of active runs; 0 means no limit.
func ConcurrencyLimit(spec *stablev1.CronTabSpec) int {
	switch spec.ConcurrencyPolicy {
	case stablev1.ReplaceConcurrent:
		return 1
	case stablev1.ForbidConcurrent, stablev1.QueueConcurrent:
		return int(ptr.Deref(spec.MaxConcurrency, 1))
	default:
		return int(ptr.Deref(spec.MaxConcurrency, 0))
	}
}

// IsStopped reports whether spec.suspendAfterFailures has stopped the schedule, according to the status.
func IsStopped(cronTab *stablev1.CronTab) bool {
	limit, recorded := cronTab.Spec.SuspendAfterFailures, cronTab.Status.FailureStreak
	return limit != nil && recorded != nil && len(recorded.Runs) >= int(*limit)
}

// Resume changes the spec so that the schedule runs, whether spec.suspend or spec.suspendAfterFailures has stopped it.
func Resume(cronTab *stablev1.CronTab, now time.Time) {
	cronTab.Spec.Suspend = ptr.To(false)
	if IsStopped(cronTab) {
		cronTab.Spec.ResumeRequestedAt = &metav1.Time{Time: now}
	}
}
