package crontab

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/crontab"
	"github.com/keelson-dev/keelson/internal/kube"
)

const (
	// maxLateness is how late a run may start with missedRuns Skip, if there is no deadline.
	maxLateness = 10 * time.Second

	// maxQueued limits the queue of concurrencyPolicy Queue. A queue that keeps growing is a
	// mistake, and the condition reports it.
	maxQueued = 100

	// maxClockSkew is how far decidedUntil may be in the future before a condition reports it.
	maxClockSkew = time.Minute

	// maxCleanupDelay is how long due runs of a CronTab may delay its cleanup and status, and maxPostponement how long those of others may
	// delay them, and late runs. Without these, due runs that come faster than the API server accepts them would delay all else for as long
	// as that lasts.
	maxCleanupDelay, maxPostponement = 5 * time.Second, 10 * time.Second

	// liveReadThreshold is how late a run must be before the controller reads the CronTab from the
	// API server: another process may have taken over in the meantime.
	liveReadThreshold = time.Minute
)

// pendingRun is a run that has not started yet.
type pendingRun struct {
	// at is the scheduled time, or for a manual run the requested time.
	at     time.Time
	manual bool
	name   string
	// due is when the run should start: the scheduled time plus jitter.
	due time.Time
	// values are those of the parameters.
	values crontab.Values
	// backfill is the request of the backfill that the run belongs to; zero if it belongs to none.
	backfill time.Time
	// follows are the Jobs that the run follows by spec.after, as those of a run.
	follows []types.UID
}

// isScheduled reports whether the schedule starts the run, not a request.
func (s *pendingRun) isScheduled() bool { return !s.manual && s.backfill.IsZero() }

// plan is the result of decide.
type plan struct {
	// now is the time for which the plan was made.
	now time.Time
	// progress is the progress before act, and afterStart the one after start.
	progress, afterStart progress
	// scheduleChanged means that the schedule differs from the one of the last reconcile.
	scheduleChanged bool

	// stopped means that suspendAfterFailures stops the schedule, and halted that this or suspend does.
	stopped, halted bool

	// start is the run to start now, or nil.
	start *pendingRun
	// postponed means that start waits until what is due now has started. needsLiveRead means that the API server has to confirm the
	// progress before start.
	postponed, needsLiveRead bool
	// cleanupOverdue means that cleanup does not wait any longer until no run is due.
	cleanupOverdue bool
	// blocked is the run that has to wait, because the concurrency limit is reached.
	blocked *pendingRun
	// request is the time of the request that has no run yet; zero if there is none. replaced is the
	// request that it took the place of before the run started.
	request, replaced time.Time
	// refused is why a request or spec.after cannot be obeyed, or nil.
	refused *refusal
	// confirm are the Jobs that newly queued runs follow.
	confirm []run
	// backfill are the times of a backfill that has not finished according to the status; nil if there is none.
	backfill *crontab.Backfill
	// queuedCount is the number of waiting runs, including start.
	queuedCount int

	// missed is the number of runs that this plan drops. overflow means that some were dropped
	// because there were too many.
	missed   int
	overflow bool

	// replace are active Jobs to delete for the blocked run. prune are finished Jobs over the
	// history limits. release are Jobs whose ttlSecondsAfterFinished is to be restored.
	replace, prune, release []run
	// moreCleanup means that prune or release did not fit into this plan.
	moreCleanup bool

	// next is the next scheduled time; zero if there is none.
	next time.Time
	// wakeAt is when to reconcile again if no event comes before; zero means never.
	wakeAt time.Time
}

// decide returns what to do for a CronTab at a time. It is pure.
func decide(cronTab *stablev1.CronTab, seen observation, now time.Time) plan {
	p := plan{now: now, progress: seen.progress.clone()}
	p.countFailures(cronTab, seen)
	p.halted = p.stopped || isSuspended(cronTab)
	p.resetOnScheduleChange(cronTab, seen)
	if seen.schedule != nil && !p.halted {
		p.queueDueRuns(&cronTab.Spec, seen)
		p.queueFollowing(cronTab, seen)
		p.dropExpired(&cronTab.Spec, seen.schedule)
	} else {
		p.dropOldest(len(p.progress.queued))
	}
	p.selectNextRun(cronTab, seen)
	if p.start != nil {
		p.afterStart = p.progress.afterStart(p.start)
		p.postponed = !seen.postponed && p.isLate()
		p.needsLiveRead = !p.postponed && p.isDoubtful(seen.verifiedAt, seen.stalledAt)
	}
	p.selectCleanup(cronTab, seen)
	p.scheduleWakeup(cronTab, seen)
	return p
}

func isSuspended(cronTab *stablev1.CronTab) bool { return ptr.Deref(cronTab.Spec.Suspend, false) }

// stoppedSuffix follows the hash of a schedule that suspendAfterFailures has stopped.
const stoppedSuffix = "-stopped"

// resetOnScheduleChange restarts the progress if the schedule has changed: times before the change
// do not run.
func (p *plan) resetOnScheduleChange(cronTab *stablev1.CronTab, seen observation) {
	hash := seen.scheduleHash(cronTab)
	if p.stopped {
		// As with suspend, times before the schedule stops or continues do not run afterwards.
		hash += stoppedSuffix
	}
	if hash == p.progress.hash {
		return
	}
	p.scheduleChanged = true
	if p.progress.hash == "" {
		p.ignoreInheritedRequest(cronTab)
	}
	since := p.now
	if p.progress.hash == "" && cronTab.Generation <= 1 {
		// A new and unchanged CronTab counts from its creation. If it was changed since, the time
		// of the change is unknown.
		since = cronTab.CreationTimestamp.Time
		if proven := p.progress.decidedUntil; proven.After(since) {
			since = proven
		}
	}
	if last := p.progress.lastScheduled; last.After(since) && last.Before(since.Add(maxClockSkew)) {
		// The clock was set back a little, and this run has already started.
		since = last
	}
	p.dropOldest(len(p.progress.queued))
	p.progress.hash = hash
	p.progress.decidedUntil = since.Truncate(time.Second)
}

// queueDueRuns queues the runs that have become due.
func (p *plan) queueDueRuns(spec *stablev1.CronTabSpec, seen observation) {
	from := p.progress.decidedUntil
	upTo, ok := seen.schedule.LastDue(from, p.now)
	if !ok {
		return
	}
	count := seen.schedule.Count(from, upTo)
	keep := keptRuns(spec)
	kept := seen.schedule.Latest(keep, from, upTo)
	if spec.MissedRuns == stablev1.SkipMissedRuns {
		kept = slices.DeleteFunc(kept, func(scheduled time.Time) bool {
			due := seen.schedule.Due(scheduled)
			return !due.After(seen.activeSince) || spec.StartingDeadlineSeconds == nil && p.now.Sub(due) > maxLateness
		})
	}
	p.progress.decidedUntil = upTo
	p.countMissed(count - len(kept))
	p.overflow = p.overflow || spec.MissedRuns == stablev1.AllMissedRuns && count > len(kept)
	p.progress.queued = append(p.progress.queued, kept...)
	p.limitQueue(spec)
}

// keptRuns returns how many due runs may wait, except with concurrencyPolicy Queue.
func keptRuns(spec *stablev1.CronTabSpec) int {
	switch {
	case len(spec.After) > 0 && spec.ConcurrencyPolicy == stablev1.AllowConcurrent:
		return maxQueued // the runs that they follow may end at once
	case spec.MissedRuns == stablev1.AllMissedRuns:
		return int(ptr.Deref(spec.MaxMissedRuns, 10))
	}
	return 1
}

// limitQueue drops queued runs over the limit.
func (p *plan) limitQueue(spec *stablev1.CronTabSpec) {
	if spec.ConcurrencyPolicy != stablev1.QueueConcurrent {
		// Keep the latest runs, as if all of them had become due since the last reconcile.
		if extra := len(p.progress.queued) - keptRuns(spec); extra > 0 {
			p.dropOldest(extra)
			p.overflow = p.overflow || spec.MissedRuns == stablev1.AllMissedRuns
		}
		return
	}
	// First come, first served.
	if extra := len(p.progress.queued) - maxQueued; extra > 0 {
		p.progress.queued = p.progress.queued[:maxQueued]
		p.countMissed(extra)
		p.overflow = true
	}
}

// dropExpired drops queued runs whose startingDeadlineSeconds has passed.
func (p *plan) dropExpired(spec *stablev1.CronTabSpec, times *schedule) {
	if spec.StartingDeadlineSeconds == nil {
		return
	}
	before := len(p.progress.queued)
	p.progress.queued = slices.DeleteFunc(p.progress.queued, func(scheduled time.Time) bool {
		return !p.now.Before(startDeadline(times.Due(scheduled), spec))
	})
	p.countMissed(before - len(p.progress.queued))
}

// startDeadline returns the time from which a run is too late to start. It counts whole seconds: a
// deadline of zero allows the second in which the run is due.
func startDeadline(due time.Time, spec *stablev1.CronTabSpec) time.Time {
	seconds := min(*spec.StartingDeadlineSeconds, int64(maxDeadline/time.Second))
	return due.Add(time.Duration(seconds+1) * time.Second)
}

// maxDeadline caps startingDeadlineSeconds to prevent an overflow.
const maxDeadline = 100 * 365 * 24 * time.Hour

// dropOldest drops the first n queued runs.
func (p *plan) dropOldest(n int) {
	p.progress.queued = p.progress.queued[n:]
	p.countMissed(n)
}

func (p *plan) countMissed(n int) {
	p.missed += n
	p.progress.missed += int64(n)
}

// selectNextRun selects the next run, and decides whether it may start now. Runs on demand go
// first, those of a backfill last.
func (p *plan) selectNextRun(cronTab *stablev1.CronTab, seen observation) {
	p.queuedCount = len(p.progress.queued)
	backfill, next := p.backfillRun(cronTab, seen), p.requestedRun(cronTab, seen)
	switch {
	case next != nil:
		p.queuedCount++
	case p.queuedCount > 0 && len(cronTab.Spec.After) > 0:
		next = p.followingRun(cronTab, seen, p.progress.queued[0])
	case p.queuedCount > 0:
		at := p.progress.queued[0]
		next = &pendingRun{at: at, name: jobName(cronTab, at), due: seen.schedule.Due(at), values: crontab.Defaults(&cronTab.Spec)}
	case backfill != nil:
		next = backfill
		p.queuedCount++
	}
	if next == nil {
		return
	}
	spec := &cronTab.Spec
	busy := activeRuns(seen.runs)
	if limit := crontab.ConcurrencyLimit(spec); limit == 0 || len(busy) < limit {
		p.start = next
		p.cleanupOverdue = !seen.deferredSince.IsZero() && p.now.Sub(seen.deferredSince) > maxCleanupDelay
		return
	}
	p.blocked = next
	switch {
	case spec.ConcurrencyPolicy == stablev1.ReplaceConcurrent:
		p.replace = slices.DeleteFunc(busy, func(r run) bool { return r.deleting })
	case spec.ConcurrencyPolicy != stablev1.QueueConcurrent && spec.MissedRuns == stablev1.SkipMissedRuns && !next.manual:
		p.queuedCount -= len(p.progress.queued)
		p.dropOldest(len(p.progress.queued))
	}
}

// scheduleWakeup sets the time of the next reconcile.
func (p *plan) scheduleWakeup(cronTab *stablev1.CronTab, seen observation) {
	if p.start != nil && !p.postponed && (p.queuedCount > 1 || !p.start.backfill.IsZero()) {
		// More runs are due, or perhaps more of a backfill can start.
		p.wakeAt = kube.Earlier(p.wakeAt, p.now)
	}
	if p.postponed {
		p.wakeAt = kube.Earlier(p.wakeAt, p.now.Add(maxPostponement))
	}
	if waiting := longestWaiting(seen.runs); waiting != nil && seen.stuckAfter > 0 {
		p.wakeAt = kube.Earlier(p.wakeAt, nextStuckCheck(waiting, seen.stuckAfter, p.now))
	}
	if seen.schedule == nil || p.halted {
		return
	}
	if next, ok := seen.schedule.Next(p.progress.decidedUntil); ok {
		p.next = next
		p.wakeAt = kube.Earlier(p.wakeAt, seen.schedule.Due(next))
	}
	if cronTab.Spec.StartingDeadlineSeconds != nil && p.start == nil && len(p.progress.queued) > 0 {
		p.wakeAt = kube.Earlier(p.wakeAt, startDeadline(seen.schedule.Due(p.progress.queued[0]), &cronTab.Spec))
	}
}

// isDoubtful reports whether another process may have started the run: the API server has not confirmed the progress yet, or not since
// the run became very late or this process stalled.
func (p plan) isDoubtful(verified, stalled time.Time) bool {
	return verified.IsZero() || verified.Before(stalled) || p.now.Sub(p.start.due) > liveReadThreshold && kube.Elapsed(verified, p.now) > liveReadThreshold
}

// isLate reports whether others that are due now start before the run: after an absence, or if it belongs to a backfill.
func (p plan) isLate() bool {
	return !p.start.backfill.IsZero() || p.start.isScheduled() && p.now.Sub(p.start.due) > maxLateness
}

// action names the first action of act, for the log.
func (p plan) action() string {
	switch {
	case p.start != nil:
		return "start"
	case p.blocked != nil && len(p.replace) > 0:
		return "replace"
	case p.blocked != nil:
		return "blocked"
	case len(p.prune)+len(p.release) > 0:
		return "clean up"
	default:
		return "wait"
	}
}

// isRoutine reports whether starting a run on time is the only action, so that the status can wait:
// nobody needs the update, and it can be rebuilt if this process dies first.
func (p plan) isRoutine() bool {
	onTime := p.start != nil && p.start.isScheduled() && p.now.Sub(p.start.due) <= maxLateness
	return onTime && p.queuedCount == 1 && p.missed == 0 && !p.scheduleChanged && !p.cleanupOverdue
}
