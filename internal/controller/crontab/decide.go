package crontab

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

const (
	// maxLateness is how late a run may be with missedRuns Skip, if there is no deadline.
	maxLateness = 10 * time.Second

	// maxQueued is how many runs wait at most with concurrencyPolicy Queue. A queue that
	// only grows is a mistake that somebody should hear of.
	maxQueued = 100

	// maxClockSkew is how far a nominal time that was decided may lie in the future
	// before that is worth a condition.
	maxClockSkew = time.Minute

	// maxCleanupDelay is how long runs go before all else.
	maxCleanupDelay = 5 * time.Second

	// cleanupBatch is how many finished Jobs are deleted, and how many released, before one looks whether something is due: to
	// delete thousands takes minutes. cleanupInterval is when one looks again if there are more, and no event comes before.
	cleanupBatch    = 10
	cleanupInterval = 100 * time.Millisecond

	// handoverPeriod is how long Jobs of times before this process took over keep their names.
	// A manager before it that was suspended may wake up and send what it had in hand.
	handoverPeriod = time.Minute
)

// pendingRun is a run that is to be started.
type pendingRun struct {
	// at is the nominal time, or the request of a manual run.
	at     time.Time
	manual bool
	name   string
	// due is when it should have started.
	due time.Time
}

// plan is what to do.
type plan struct {
	// now is when it was made.
	now time.Time
	// progress is how far the CronTab has come, before anything of the below is done.
	progress progress
	// scheduleChanged says that the timetable is another one than before.
	scheduleChanged bool

	// start is the next run, if it may start now.
	start *pendingRun
	// cleanupOverdue says that all else that is to be done waits no longer for an end of the runs.
	cleanupOverdue bool
	// blocked is the run that may not, because others are active.
	blocked *pendingRun
	// queuedCount is how many runs wait, start included.
	queuedCount int

	// missed is how many runs are given up with this plan; overflow says that some of
	// them are because there were too many.
	missed   int
	overflow bool

	// replace are Jobs that make room for the run that is blocked; prune are finished
	// ones beyond the history limits; release are those whose time to live begins.
	replace, prune, release []run
	// moreCleanup says that there are more of the last two.
	moreCleanup bool

	// next is the next nominal time; zero if there is none.
	next time.Time
	// wakeAt is when to look again if nothing happens before; zero is never.
	wakeAt time.Time
}

// decide returns what is to be done for a CronTab, given what there is.
func decide(cronTab *stablev1.CronTab, seen observation, now time.Time) plan {
	p := plan{now: now, progress: seen.progress.clone()}
	p.resetOnScheduleChange(cronTab, seen)
	if seen.schedule != nil && !isSuspended(cronTab) {
		p.queueDueRuns(&cronTab.Spec, seen)
		p.dropExpired(&cronTab.Spec, seen.schedule)
	} else {
		p.dropOldest(len(p.progress.queued))
	}
	p.selectNextRun(cronTab, seen)
	p.selectCleanup(cronTab, seen)
	p.scheduleWakeup(cronTab, seen)
	return p
}

func isSuspended(cronTab *stablev1.CronTab) bool { return ptr.Deref(cronTab.Spec.Suspend, false) }

// resetOnScheduleChange begins anew if the timetable has changed: what was due before is not run.
func (p *plan) resetOnScheduleChange(cronTab *stablev1.CronTab, seen observation) {
	hash := scheduleHash(&cronTab.Spec)
	if hash == p.progress.hash {
		return
	}
	p.scheduleChanged = true
	if p.progress.hash == "" {
		p.ignoreInheritedRequest(cronTab)
	}
	since := p.now
	if p.progress.hash == "" && cronTab.Generation <= 1 {
		// It is new and as it was created. If it was changed since, nobody knows when.
		since = cronTab.CreationTimestamp.Time
		if proven := p.progress.decidedUntil; proven.After(since) {
			since = proven
		}
	}
	if last := p.progress.lastScheduled; last.After(since) && last.Before(since.Add(maxClockSkew)) {
		// The clock went back a little, and this one ran already.
		since = last
	}
	p.dropOldest(len(p.progress.queued))
	p.progress.hash = hash
	p.progress.decidedUntil = since.Truncate(time.Second)
}

// queueDueRuns lets the runs wait that have become due.
func (p *plan) queueDueRuns(spec *stablev1.CronTabSpec, seen observation) {
	from := p.progress.decidedUntil
	upTo, ok := seen.schedule.lastDue(from, p.now)
	if !ok {
		return
	}
	count := seen.schedule.plan.Count(from, upTo)
	keep := 1
	if spec.MissedRuns == stablev1.AllMissedRuns {
		keep = int(ptr.Deref(spec.MaxMissedRuns, 10))
	}
	kept := seen.schedule.latest(keep, from, upTo)
	if spec.MissedRuns == stablev1.SkipMissedRuns {
		kept = slices.DeleteFunc(kept, func(nominal time.Time) bool {
			due := seen.schedule.due(nominal)
			return !due.After(seen.activeSince) || spec.StartingDeadlineSeconds == nil && p.now.Sub(due) > maxLateness
		})
	}
	p.progress.decidedUntil = upTo
	p.countMissed(count - len(kept))
	p.overflow = p.overflow || spec.MissedRuns == stablev1.AllMissedRuns && count > len(kept)
	p.progress.queued = append(p.progress.queued, kept...)
	p.limitQueue(spec, keep)
}

// limitQueue gives up runs that wait if there are more than may.
func (p *plan) limitQueue(spec *stablev1.CronTabSpec, keep int) {
	if spec.ConcurrencyPolicy != stablev1.QueueConcurrent {
		// The latest ones count, as if nobody had looked before.
		if extra := len(p.progress.queued) - keep; extra > 0 {
			p.dropOldest(extra)
			p.overflow = p.overflow || spec.MissedRuns == stablev1.AllMissedRuns
		}
		return
	}
	// In a queue the first come first.
	if extra := len(p.progress.queued) - maxQueued; extra > 0 {
		p.progress.queued = p.progress.queued[:maxQueued]
		p.countMissed(extra)
		p.overflow = true
	}
}

// dropExpired gives up the runs that can no longer start before their deadline.
func (p *plan) dropExpired(spec *stablev1.CronTabSpec, times *schedule) {
	if spec.StartingDeadlineSeconds == nil {
		return
	}
	before := len(p.progress.queued)
	p.progress.queued = slices.DeleteFunc(p.progress.queued, func(nominal time.Time) bool {
		return !p.now.Before(startDeadline(times.due(nominal), spec))
	})
	p.countMissed(before - len(p.progress.queued))
}

// startDeadline returns when a run is too late that was due. Whole seconds count: a deadline
// of zero leaves the second in which it is due.
func startDeadline(due time.Time, spec *stablev1.CronTabSpec) time.Time {
	seconds := min(*spec.StartingDeadlineSeconds, int64(maxDeadline/time.Second))
	return due.Add(time.Duration(seconds+1) * time.Second)
}

// maxDeadline is longer than any that makes a difference, and far from overflow.
const maxDeadline = 100 * 365 * 24 * time.Hour

// dropOldest gives up the first n runs that wait.
func (p *plan) dropOldest(n int) {
	p.progress.queued = p.progress.queued[n:]
	p.countMissed(n)
}

func (p *plan) countMissed(n int) {
	p.missed += n
	p.progress.missed += int64(n)
}

// selectNextRun says which run starts, if one may.
func (p *plan) selectNextRun(cronTab *stablev1.CronTab, seen observation) {
	p.queuedCount = len(p.progress.queued)
	next := p.requestedRun(cronTab, seen)
	if next != nil {
		p.queuedCount++
	} else if p.queuedCount > 0 {
		at := p.progress.queued[0]
		next = &pendingRun{at: at, name: jobName(cronTab, at), due: seen.schedule.due(at)}
	}
	if next == nil {
		return
	}
	spec := &cronTab.Spec
	busy := activeRuns(seen.runs)
	if limit := concurrencyLimit(spec); limit == 0 || len(busy) < limit {
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

// concurrencyLimit returns how many runs may be active at a time; 0 is no limit.
func concurrencyLimit(spec *stablev1.CronTabSpec) int {
	switch spec.ConcurrencyPolicy {
	case stablev1.ReplaceConcurrent:
		return 1
	case stablev1.ForbidConcurrent, stablev1.QueueConcurrent:
		return int(ptr.Deref(spec.MaxConcurrency, 1))
	default:
		return int(ptr.Deref(spec.MaxConcurrency, 0))
	}
}

// selectCleanup says which Jobs have become superfluous. Only those count whose run is in the
// status: else the Job is the only proof of it.
func (p *plan) selectCleanup(cronTab *stablev1.CronTab, seen observation) {
	isOpen := func(r run) bool { return r.deleting || !seen.isRecorded(cronTab, r) }
	for _, r := range seen.runs {
		if withheldTTL(r) != nil && !isOpen(r) {
			p.release = append(p.release, r)
		}
	}
	p.prune = append(seen.overHistoryLimit(succeeded, ptr.Deref(cronTab.Spec.SuccessfulJobsHistoryLimit, 3)),
		seen.overHistoryLimit(failed, ptr.Deref(cronTab.Spec.FailedJobsHistoryLimit, 1))...)
	p.prune = slices.DeleteFunc(p.prune, isOpen)
	p.keepDuringHandover(seen.activeSince)
	p.moreCleanup = len(p.prune) > cleanupBatch || len(p.release) > cleanupBatch
	p.prune = p.prune[:min(len(p.prune), cleanupBatch)]
	p.release = p.release[:min(len(p.release), cleanupBatch)]
}

// keepDuringHandover lets superfluous Jobs of times before this process took over keep their names
// until the handover is over.
func (p *plan) keepDuringHandover(since time.Time) {
	over := since.Add(handoverPeriod)
	if !p.now.Before(over) {
		return
	}
	isEarlier := func(r run) bool { return !r.at.After(since) }
	if slices.ContainsFunc(p.prune, isEarlier) || slices.ContainsFunc(p.release, isEarlier) {
		p.wakeAt = earlier(p.wakeAt, over)
	}
	p.prune = slices.DeleteFunc(p.prune, isEarlier)
	p.release = slices.DeleteFunc(p.release, isEarlier)
}

// scheduleWakeup says when to look again.
func (p *plan) scheduleWakeup(cronTab *stablev1.CronTab, seen observation) {
	if p.start != nil && p.queuedCount > 1 {
		// There is more to start.
		p.wakeAt = earlier(p.wakeAt, p.now)
	}
	if seen.schedule == nil || isSuspended(cronTab) {
		return
	}
	if next, ok := seen.schedule.next(p.progress.decidedUntil); ok {
		p.next = next
		p.wakeAt = earlier(p.wakeAt, seen.schedule.due(next))
	}
	if cronTab.Spec.StartingDeadlineSeconds != nil && p.start == nil && len(p.progress.queued) > 0 {
		p.wakeAt = earlier(p.wakeAt, startDeadline(seen.schedule.due(p.progress.queued[0]), &cronTab.Spec))
	}
}

// earlier returns the earlier of two times; zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// requestedTime returns the time that asks for a run on demand, in whole seconds; zero if
// nobody asks. A text that is no time is an error.
func requestedTime(cronTab *stablev1.CronTab) (time.Time, error) {
	text, found := cronTab.Annotations[stablev1.RunRequestedAtAnnotation]
	if !found || text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("annotation %s is %q, which is no time; write one in RFC 3339, such as 2026-12-24T18:00:00Z",
			stablev1.RunRequestedAtAnnotation, text)
	}
	return at.Truncate(time.Second), nil
}

// ignoreInheritedRequest takes a request for answered that a CronTab without a status brings along and that is older than itself: it was
// made of an earlier CronTab, and has come back from a backup, or with a copy.
func (p *plan) ignoreInheritedRequest(cronTab *stablev1.CronTab) {
	// The clock of who asks may be behind.
	if at, err := requestedTime(cronTab); err == nil && !at.IsZero() && at.Before(cronTab.CreationTimestamp.Add(-maxClockSkew)) {
		p.progress.lastManual = at
	}
}

// requestedRun returns the run that was asked for and has not been started.
func (p *plan) requestedRun(cronTab *stablev1.CronTab, seen observation) *pendingRun {
	at, err := requestedTime(cronTab)
	if err != nil || at.IsZero() || at.Equal(p.progress.lastManual) {
		return nil
	}
	for _, r := range seen.runs {
		if r.manual && r.at.Equal(at) {
			// Its status was lost.
			p.progress.lastManual = at
			return nil
		}
	}
	return &pendingRun{at: at, manual: true, name: manualJobName(cronTab, seen, at), due: at}
}

// manualJobName returns the name of the Job of a run on demand: like that of a scheduled
// run, unless one has it or could have it. Then the second is mirrored at the creation of
// the CronTab, where no nominal time ever is.
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
