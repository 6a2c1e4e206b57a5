package crontab

import (
	"fmt"
	"time"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

// lateAfter is how late a run is when somebody is told of it. In a burst many are late by
// seconds, and each event would be one more write before the others.
const lateAfter = time.Minute

// tell records events about what was done and what was not. A run on time is none: its
// Job says so, and the event would be the third write for it.
func (r *Reconciler) tell(cronTab *stablev1.CronTab, m *memory, status stablev1.CronTabStatus, p plan, d done) {
	if _, err := requested(cronTab); err != nil {
		if text := cronTab.Annotations[stablev1.RunRequestedAtAnnotation]; m.warned != text {
			m.warned = text
			r.events.Warning(cronTab, stablev1.ReasonInvalidRunRequest, "RequestRun", err.Error())
		}
	}
	if d.started != nil && (d.started.manual || p.now.Sub(p.start.due) > lateAfter) {
		r.events.Normal(cronTab, stablev1.ReasonSuccessfulCreate, "CreateJob", fmt.Sprintf("Created Job %q", d.started.name))
	}
	for _, replaced := range d.replaced {
		r.events.Normal(cronTab, stablev1.ReasonSuccessfulDelete, "DeleteJob",
			fmt.Sprintf("Deleted Job %q, which another run replaces", replaced.name))
	}
	if p.blocked != nil && p.blocked.due.After(m.blocked) {
		m.blocked = p.blocked.due
		if policy := cronTab.Spec.ConcurrencyPolicy; policy == stablev1.ForbidConcurrent || policy == stablev1.AllowConcurrent {
			r.events.Normal(cronTab, stablev1.ReasonJobAlreadyActive, "CreateJob",
				fmt.Sprintf("Did not start a run: concurrencyPolicy %s allows %d active at a time", policy, concurrency(&cronTab.Spec)))
		}
	}
	switch {
	case p.overflow:
		r.events.Warning(cronTab, stablev1.ReasonTooManyMissedRuns, "Schedule", fmt.Sprintf("Missed %d runs for good: more were due than may be made up for", p.missed))
	case p.missed > 0:
		r.events.Warning(cronTab, stablev1.ReasonMissSchedule, "Schedule", fmt.Sprintf("Missed %d runs, which will not be started", p.missed))
	}
	if at := timeOf(status.LastFailureTime); at.After(timeOf(cronTab.Status.LastFailureTime)) && at.After(m.failed) {
		m.failed = at
		r.events.Warning(cronTab, stablev1.ReasonJobFailed, "WatchJob", "A Job failed; kubectl get jobs shows which")
	}
}
