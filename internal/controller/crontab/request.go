package crontab

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// NewRequest returns the value of spec.runRequestedAt that requests a run now.
func NewRequest(cronTab *stablev1.CronTab, now time.Time) metav1.Time {
	return kube.NextRequest(now, cronTab.Spec.RunRequestedAt, cronTab.Status.LastRunRequestedAt)
}

// OpenRequest returns the time of the request whose run has not started yet; zero if there is none. A CronTab has one
// request at a time: another one would take its place.
func OpenRequest(cronTab *stablev1.CronTab) time.Time {
	at := requestedTime(cronTab)
	if at.Equal(fromMetaTime(cronTab.Status.LastRunRequestedAt)) {
		return time.Time{}
	}
	return at
}

// Obstacle returns what keeps a requested run from starting, according to the status; empty if nothing does.
func Obstacle(cronTab *stablev1.CronTab) string {
	ready := meta.FindStatusCondition(cronTab.Status.Conditions, stablev1.ConditionReady)
	if ready != nil && ready.Status == metav1.ConditionFalse &&
		slices.Contains([]string{stablev1.ReasonJobNameTaken, stablev1.ReasonJobRejected, stablev1.ReasonJobWriteFailed}, ready.Reason) {
		return ready.Message
	}
	var all []string
	limit := concurrencyLimit(&cronTab.Spec)
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

// formatRequest returns the time of a request as users see it, and as the Job of its run has it.
func formatRequest(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// requestedTime returns spec.runRequestedAt in whole seconds; zero if there is no request.
func requestedTime(cronTab *stablev1.CronTab) time.Time {
	return kube.RequestedAt(cronTab.Spec.RunRequestedAt)
}

// ignoreInheritedRequest treats the request of a CronTab without a status as answered if it is
// older than the CronTab: it belonged to an earlier CronTab and came back with a backup or a copy.
func (p *plan) ignoreInheritedRequest(cronTab *stablev1.CronTab) {
	// Tolerate a client with a slow clock.
	if at := requestedTime(cronTab); !at.IsZero() && at.Before(cronTab.CreationTimestamp.Add(-maxClockSkew)) {
		p.progress.lastManual = at
	}
}

// requestedRun returns the run on demand that has not started yet, or nil.
func (p *plan) requestedRun(cronTab *stablev1.CronTab, seen observation) *pendingRun {
	at := requestedTime(cronTab)
	if at.IsZero() || at.Equal(p.progress.lastManual) {
		return nil
	}
	for _, r := range seen.runs {
		if r.manual && r.at.Equal(at) {
			// The status update was lost.
			p.progress.lastManual = at
			return nil
		}
	}
	p.request = at
	if !seen.openRequest.IsZero() && !seen.openRequest.Equal(at) {
		p.replaced = seen.openRequest
	}
	return &pendingRun{at: at, manual: true, name: manualJobName(cronTab, seen, at), due: at}
}

// manualJobName returns the name of the Job of a run on demand. It has the format of a scheduled
// run. If a scheduled run has that name or could get it, the time is mirrored at the creation of
// the CronTab, to where no scheduled time can be.
func manualJobName(cronTab *stablev1.CronTab, seen observation, at time.Time) string {
	taken := seen.schedule != nil && seen.schedule.contains(at)
	for _, r := range seen.runs {
		taken = taken || !r.manual && r.at.Equal(at)
	}
	if created := cronTab.CreationTimestamp.Unix(); taken && at.Unix() > created {
		at = time.Unix(2*created-at.Unix(), 0)
	}
	return jobName(cronTab, at)
}
