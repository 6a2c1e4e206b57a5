package crontab

import (
	"time"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/crontab"
	"github.com/keelson-dev/keelson/internal/requests"
)

// formatRequest returns the time of a request as users see it, and as the Job of its run has it.
func formatRequest(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// ignoreInheritedRequest treats the request of a CronTab without a status as answered if it is
// older than the CronTab: it belonged to an earlier CronTab and came back with a backup or a copy.
func (p *plan) ignoreInheritedRequest(cronTab *stablev1.CronTab) {
	// Tolerate a client with a slow clock.
	if at := requests.At(cronTab.Spec.RunRequestedAt); !at.IsZero() && at.Before(cronTab.CreationTimestamp.Add(-maxClockSkew)) {
		p.progress.lastManual = at
	}
}

// requestedRun returns the run on demand that has not started yet, or nil if there is none or
// its parameters are invalid.
func (p *plan) requestedRun(cronTab *stablev1.CronTab, seen observation) *pendingRun {
	at := requests.At(cronTab.Spec.RunRequestedAt)
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
	values, err := crontab.RequestedValues(&cronTab.Spec)
	if err != nil {
		// Scheduled runs do not wait until somebody corrects it.
		p.refused = err
		return nil
	}
	return &pendingRun{at: at, manual: true, name: manualJobName(cronTab, seen, at), due: at, values: values}
}

// manualJobName returns the name of the Job of a run on demand. It has the format of a scheduled
// run. If a scheduled run has that name or could get it, the time is mirrored at the creation of
// the CronTab, to where no scheduled time can be.
func manualJobName(cronTab *stablev1.CronTab, seen observation, at time.Time) string {
	taken := seen.schedule != nil && seen.schedule.Contains(at)
	for _, r := range seen.runs {
		taken = taken || !r.manual && r.at.Equal(at)
	}
	if created := cronTab.CreationTimestamp.Unix(); taken && at.Unix() > created {
		at = time.Unix(2*created-at.Unix(), 0)
	}
	return jobName(cronTab, at)
}
