package crontab

import (
	"fmt"
	"slices"
	"time"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/crontab"
	"github.com/keelson-dev/keelson/internal/requests"
)

// formatRequest returns the time of a request as users see it, and as the Job of its run has it.
func formatRequest(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// refusal is why a request cannot be obeyed: reason and message of a condition.
type refusal struct{ reason, message string }

// ignoreInheritedRequest treats the request of a CronTab without a status as answered if it is
// older than the CronTab: it belonged to an earlier CronTab and came back with a backup or a copy.
func (p *plan) ignoreInheritedRequest(cronTab *stablev1.CronTab) {
	// Tolerate a client with a slow clock.
	if at := requests.At(cronTab.Spec.RunRequestedAt); !at.IsZero() && at.Before(cronTab.CreationTimestamp.Add(-maxClockSkew)) {
		p.progress.lastManual = at
	}
	if spec := cronTab.Spec.Backfill; spec != nil && spec.RequestedAt.Time.Before(cronTab.CreationTimestamp.Add(-maxClockSkew)) {
		p.progress.backfill = backfill{requested: requests.At(&spec.RequestedAt), finished: p.now.Truncate(time.Second)}
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
		p.refused = &refusal{stablev1.ReasonInvalidParameters, fmt.Sprintf("The run requested at %s does not start: %s. Correct spec.runParameters, or remove spec.runRequestedAt", formatRequest(at), err)}
		return nil
	}
	return &pendingRun{at: at, manual: true, name: manualJobName(cronTab, seen, at), due: at, values: values}
}

// manualJobName returns the name of the Job of a run on demand. It has the format of a scheduled
// run. If a scheduled run has that name or could get it, the time is mirrored at the creation of
// the CronTab, to where no scheduled time can be.
func manualJobName(cronTab *stablev1.CronTab, seen observation, at time.Time) string {
	taken := seen.schedule != nil && seen.schedule.Contains(at) || len(cronTab.Spec.After) > 0
	for _, r := range seen.runs {
		taken = taken || !r.manual && r.at.Equal(at)
	}
	if created := cronTab.CreationTimestamp.Unix(); taken && at.Unix() > created {
		at = time.Unix(2*created-at.Unix(), 0)
	}
	return jobName(cronTab, at)
}

// backfill is the position of a CronTab in a backfill.
type backfill struct {
	// requested is the request; zero if there was none.
	requested time.Time
	// reached is the last scheduled time that was started or skipped, in the order of the backfill; zero if there is none.
	reached time.Time
	// finished is when its last run had finished.
	finished time.Time
}

func backfillFromStatus(recorded *stablev1.BackfillStatus) backfill {
	if recorded == nil {
		return backfill{}
	}
	return backfill{recorded.RequestedAt.Time, fromMetaTime(recorded.ReachedTime), fromMetaTime(recorded.FinishTime)}
}

// toStatus returns the backfill for a status, with the counts of the last status if that is about the same request.
func (b backfill) toStatus(last *stablev1.BackfillStatus) *stablev1.BackfillStatus {
	if b.requested.IsZero() {
		return nil
	}
	status := &stablev1.BackfillStatus{RequestedAt: *toMetaTime(b.requested), ReachedTime: toMetaTime(b.reached), FinishTime: toMetaTime(b.finished)}
	if last != nil && last.RequestedAt.Time.Equal(b.requested) {
		status.Total, status.Done = last.Total, last.Done
	}
	return status
}

func (b backfill) equal(other backfill) bool {
	return b.requested.Equal(other.requested) && b.reached.Equal(other.reached) && b.finished.Equal(other.finished)
}

// backfillRun returns the run of a backfill that can start now, or nil. Its Jobs are the proof of its runs until the status
// records them, as for those of the schedule.
func (p *plan) backfillRun(cronTab *stablev1.CronTab, seen observation) *pendingRun {
	spec := cronTab.Spec.Backfill
	if spec == nil || seen.schedule == nil {
		return nil
	}
	b := &p.progress.backfill
	if at := requests.At(&spec.RequestedAt); !at.Equal(b.requested) {
		*b = backfill{requested: at}
	}
	if !b.finished.IsZero() && b.equal(seen.recorded.backfill) {
		return nil
	}
	times, err := seen.schedule.NewBackfill(spec)
	if err != nil {
		p.refused = &refusal{stablev1.ReasonInvalidBackfill, fmt.Sprintf("spec.backfill: %s", err)}
		return nil
	}
	p.backfill = &times
	if !b.finished.IsZero() {
		return nil
	}
	started := 0
	for _, r := range seen.runs {
		if !r.backfill.Equal(b.requested) {
			continue
		}
		if !times.IsReached(r.at, b.reached) {
			b.reached = r.at // the status update was lost
		}
		if r.phase == active || r.deleting {
			started++
		}
	}
	limit := crontab.ConcurrencyLimit(&cronTab.Spec)
	isFull := p.stopped || started >= int(max(spec.MaxConcurrency, 1)) || limit > 0 && len(activeRuns(seen.runs)) >= limit
	return p.nextOfBackfill(cronTab, seen, isFull, started == 0)
}

// nextOfBackfill skips the times that do not run, and returns the run of the next one that does; nil if it cannot start yet.
func (p *plan) nextOfBackfill(cronTab *stablev1.CronTab, seen observation, isFull, isIdle bool) *pendingRun {
	b := &p.progress.backfill
	for {
		at, ok := p.backfill.Next(b.reached)
		if !ok {
			if isIdle {
				b.finished = p.now.Truncate(time.Second)
			}
			return nil
		}
		if !p.halted && at.After(p.progress.decidedUntil) {
			return nil // the schedule starts it
		}
		earlier := slices.IndexFunc(seen.runs, func(r run) bool { return !r.manual && r.at.Equal(at) })
		switch {
		case slices.ContainsFunc(p.progress.queued, at.Equal), earlier >= 0 && !runsAgain(cronTab.Spec.Backfill.Reprocess, seen.runs[earlier]):
			b.reached = at
			continue
		case isFull:
			return nil
		case earlier >= 0:
			if !seen.runs[earlier].deleting {
				p.replace = append(p.replace, seen.runs[earlier])
			}
			return nil
		}
		return &pendingRun{at: at, name: jobName(cronTab, at), due: p.now, values: crontab.Defaults(&cronTab.Spec), backfill: b.requested}
	}
}

// runsAgain reports whether a backfill runs the time of an earlier run again.
func runsAgain(mode stablev1.Reprocess, earlier run) bool {
	switch {
	case earlier.phase == active:
		return earlier.deleting
	case mode == stablev1.ReprocessAll:
		return true
	default:
		return mode == stablev1.ReprocessFailed && earlier.phase == failed
	}
}

// concernsBackfill reports whether a backfill needs the Job of a run: to know later that it does not run that time, or as the proof
// of a run of its own that the status does not record yet.
func (p *plan) concernsBackfill(seen observation, r run) bool {
	if p.backfill == nil || r.manual {
		return false
	}
	var reached time.Time
	if recorded := seen.recorded.backfill; recorded.requested.Equal(p.progress.backfill.requested) {
		reached = recorded.reached
	}
	return p.backfill.IsAhead(r.at, reached)
}
