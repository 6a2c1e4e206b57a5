package crontab

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

const (
	// onTime is how late a run may be with missedRuns Skip, if there is no deadline.
	onTime = 10 * time.Second

	// maxQueued is how many runs wait at most with concurrencyPolicy Queue. A queue that
	// only grows is a mistake that somebody should hear of.
	maxQueued = 100

	// clockSkew is how far a nominal time that was decided may lie in the future
	// before that is worth a condition.
	clockSkew = time.Minute

	// longestWait is how long runs go before all else.
	longestWait = 5 * time.Second

	// tidyAtATime is how many finished Jobs are deleted, and how many released, before one looks whether something is due: to
	// delete thousands takes minutes. untidyPause is when one looks again if there are more, and no event comes before.
	tidyAtATime = 10
	untidyPause = 100 * time.Millisecond

	// handover is how long Jobs of times before this process took over keep their names.
	// A manager before it that was suspended may wake up and send what it had in hand.
	handover = time.Minute
)

// start is a run that is to be started.
type start struct {
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
	// restarted says that the timetable is another one than before.
	restarted bool

	// start is the next run, if it may start now.
	start *start
	// overdue says that all else that is to be done waits no longer for an end of the runs.
	overdue bool
	// blocked is the run that may not, because others are active.
	blocked *start
	// queued is how many runs wait, start included.
	queued int

	// missed is how many runs are given up with this plan; overflow says that some of
	// them are because there were too many.
	missed   int
	overflow bool

	// replace are Jobs that make room for the run that is blocked; prune are finished
	// ones beyond the history limits; release are those whose time to live begins.
	replace, prune, release []run
	// untidy says that there are more of the last two.
	untidy bool

	// next is the next nominal time; zero if there is none.
	next time.Time
	// wake is when to look again if nothing happens before; zero is never.
	wake time.Time
}

// decide returns what is to be done for a CronTab, given what there is.
func decide(cronTab *stablev1.CronTab, seen observation, now time.Time) plan {
	p := plan{now: now, progress: seen.progress.clone()}
	p.restart(cronTab, seen)
	if seen.times != nil && !isSuspended(cronTab) {
		p.advance(&cronTab.Spec, seen)
		p.giveUpLate(&cronTab.Spec, seen.times)
	} else {
		p.drop(len(p.progress.waiting))
	}
	p.choose(cronTab, seen)
	p.tidy(cronTab, seen)
	p.lookAhead(cronTab, seen)
	return p
}

func isSuspended(cronTab *stablev1.CronTab) bool { return ptr.Deref(cronTab.Spec.Suspend, false) }

// restart begins anew if the timetable has changed: what was due before is not run.
func (p *plan) restart(cronTab *stablev1.CronTab, seen observation) {
	hash := scheduleHash(&cronTab.Spec)
	if hash == p.progress.hash {
		return
	}
	p.restarted = true
	if p.progress.hash == "" {
		p.inherit(cronTab)
	}
	since := p.now
	if p.progress.hash == "" && cronTab.Generation <= 1 {
		// It is new and as it was created. If it was changed since, nobody knows when.
		since = cronTab.CreationTimestamp.Time
		if proven := p.progress.until; proven.After(since) {
			since = proven
		}
	}
	if last := p.progress.last; last.After(since) && last.Before(since.Add(clockSkew)) {
		// The clock went back a little, and this one ran already.
		since = last
	}
	p.drop(len(p.progress.waiting))
	p.progress.hash = hash
	p.progress.until = since.Truncate(time.Second)
}

// advance lets the runs wait that have become due.
func (p *plan) advance(spec *stablev1.CronTabSpec, seen observation) {
	from := p.progress.until
	upTo, ok := seen.times.dueBy(from, p.now)
	if !ok {
		return
	}
	count := seen.times.plan.Count(from, upTo)
	keep := 1
	if spec.MissedRuns == stablev1.AllMissedRuns {
		keep = int(ptr.Deref(spec.MaxMissedRuns, 10))
	}
	kept := seen.times.latest(keep, from, upTo)
	if spec.MissedRuns == stablev1.SkipMissedRuns {
		kept = slices.DeleteFunc(kept, func(nominal time.Time) bool {
			due := seen.times.due(nominal)
			return !due.After(seen.since) || spec.StartingDeadlineSeconds == nil && p.now.Sub(due) > onTime
		})
	}
	p.progress.until = upTo
	p.miss(count - len(kept))
	p.overflow = p.overflow || spec.MissedRuns == stablev1.AllMissedRuns && count > len(kept)
	p.progress.waiting = append(p.progress.waiting, kept...)
	p.limitWaiting(spec, keep)
}

// limitWaiting gives up runs that wait if there are more than may.
func (p *plan) limitWaiting(spec *stablev1.CronTabSpec, keep int) {
	if spec.ConcurrencyPolicy != stablev1.QueueConcurrent {
		// The latest ones count, as if nobody had looked before.
		if extra := len(p.progress.waiting) - keep; extra > 0 {
			p.drop(extra)
			p.overflow = p.overflow || spec.MissedRuns == stablev1.AllMissedRuns
		}
		return
	}
	// In a queue the first come first.
	if extra := len(p.progress.waiting) - maxQueued; extra > 0 {
		p.progress.waiting = p.progress.waiting[:maxQueued]
		p.miss(extra)
		p.overflow = true
	}
}

// giveUpLate gives up the runs that can no longer start before their deadline.
func (p *plan) giveUpLate(spec *stablev1.CronTabSpec, times *timetable) {
	if spec.StartingDeadlineSeconds == nil {
		return
	}
	before := len(p.progress.waiting)
	p.progress.waiting = slices.DeleteFunc(p.progress.waiting, func(nominal time.Time) bool {
		return !p.now.Before(lastStart(times.due(nominal), spec))
	})
	p.miss(before - len(p.progress.waiting))
}

// lastStart returns when a run is too late that was due. Whole seconds count: a deadline
// of zero leaves the second in which it is due.
func lastStart(due time.Time, spec *stablev1.CronTabSpec) time.Time {
	seconds := min(*spec.StartingDeadlineSeconds, int64(longestDeadline/time.Second))
	return due.Add(time.Duration(seconds+1) * time.Second)
}

// longestDeadline is longer than any that makes a difference, and far from overflow.
const longestDeadline = 100 * 365 * 24 * time.Hour

// drop gives up the first n runs that wait.
func (p *plan) drop(n int) {
	p.progress.waiting = p.progress.waiting[n:]
	p.miss(n)
}

func (p *plan) miss(n int) {
	p.missed += n
	p.progress.missed += int64(n)
}

// choose says which run starts, if one may.
func (p *plan) choose(cronTab *stablev1.CronTab, seen observation) {
	p.queued = len(p.progress.waiting)
	next := p.manualStart(cronTab, seen)
	if next != nil {
		p.queued++
	} else if p.queued > 0 {
		at := p.progress.waiting[0]
		next = &start{at: at, name: jobName(cronTab, at), due: seen.times.due(at)}
	}
	if next == nil {
		return
	}
	spec := &cronTab.Spec
	busy := occupying(seen.runs)
	if limit := concurrency(spec); limit == 0 || len(busy) < limit {
		p.start = next
		p.overdue = !seen.waiting.IsZero() && p.now.Sub(seen.waiting) > longestWait
		return
	}
	p.blocked = next
	switch {
	case spec.ConcurrencyPolicy == stablev1.ReplaceConcurrent:
		p.replace = slices.DeleteFunc(busy, func(r run) bool { return r.deleting })
	case spec.ConcurrencyPolicy != stablev1.QueueConcurrent && spec.MissedRuns == stablev1.SkipMissedRuns && !next.manual:
		p.queued -= len(p.progress.waiting)
		p.drop(len(p.progress.waiting))
	}
}

// concurrency returns how many runs may be active at a time; 0 is no limit.
func concurrency(spec *stablev1.CronTabSpec) int {
	switch spec.ConcurrencyPolicy {
	case stablev1.ReplaceConcurrent:
		return 1
	case stablev1.ForbidConcurrent, stablev1.QueueConcurrent:
		return int(ptr.Deref(spec.MaxConcurrency, 1))
	default:
		return int(ptr.Deref(spec.MaxConcurrency, 0))
	}
}

// tidy says which Jobs have become superfluous. Only those count whose run is in the
// status: else the Job is the only proof of it.
func (p *plan) tidy(cronTab *stablev1.CronTab, seen observation) {
	isOpen := func(r run) bool { return r.deleting || !seen.isRecorded(cronTab, r) }
	for _, r := range seen.runs {
		if heldTTL(r) != nil && !isOpen(r) {
			p.release = append(p.release, r)
		}
	}
	p.prune = append(seen.beyond(succeeded, ptr.Deref(cronTab.Spec.SuccessfulJobsHistoryLimit, 3)),
		seen.beyond(failed, ptr.Deref(cronTab.Spec.FailedJobsHistoryLimit, 1))...)
	p.prune = slices.DeleteFunc(p.prune, isOpen)
	p.spare(seen.since)
	p.untidy = len(p.prune) > tidyAtATime || len(p.release) > tidyAtATime
	p.prune = p.prune[:min(len(p.prune), tidyAtATime)]
	p.release = p.release[:min(len(p.release), tidyAtATime)]
}

// spare lets superfluous Jobs of times before this process took over keep their names
// until the handover is over.
func (p *plan) spare(since time.Time) {
	over := since.Add(handover)
	if !p.now.Before(over) {
		return
	}
	isEarlier := func(r run) bool { return !r.at.After(since) }
	if slices.ContainsFunc(p.prune, isEarlier) || slices.ContainsFunc(p.release, isEarlier) {
		p.wake = sooner(p.wake, over)
	}
	p.prune = slices.DeleteFunc(p.prune, isEarlier)
	p.release = slices.DeleteFunc(p.release, isEarlier)
}

// lookAhead says when to look again.
func (p *plan) lookAhead(cronTab *stablev1.CronTab, seen observation) {
	if p.start != nil && p.queued > 1 {
		// There is more to start.
		p.wake = sooner(p.wake, p.now)
	}
	if seen.times == nil || isSuspended(cronTab) {
		return
	}
	if next, ok := seen.times.next(p.progress.until); ok {
		p.next = next
		p.wake = sooner(p.wake, seen.times.due(next))
	}
	if cronTab.Spec.StartingDeadlineSeconds != nil && p.start == nil && len(p.progress.waiting) > 0 {
		p.wake = sooner(p.wake, lastStart(seen.times.due(p.progress.waiting[0]), &cronTab.Spec))
	}
}

// sooner returns the earlier of two times; zero is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// requested returns the time that asks for a run on demand, in whole seconds; zero if
// nobody asks. A text that is no time is an error.
func requested(cronTab *stablev1.CronTab) (time.Time, error) {
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

// inherit takes a request for answered that a CronTab without a status brings along and that is older than itself: it was
// made of an earlier CronTab, and has come back from a backup, or with a copy.
func (p *plan) inherit(cronTab *stablev1.CronTab) {
	// The clock of who asks may be behind.
	if at, err := requested(cronTab); err == nil && !at.IsZero() && at.Before(cronTab.CreationTimestamp.Add(-clockSkew)) {
		p.progress.manual = at
	}
}

// manualStart returns the run that was asked for and has not been started.
func (p *plan) manualStart(cronTab *stablev1.CronTab, seen observation) *start {
	at, err := requested(cronTab)
	if err != nil || at.IsZero() || at.Equal(p.progress.manual) {
		return nil
	}
	for _, r := range seen.runs {
		if r.manual && r.at.Equal(at) {
			// Its status was lost.
			p.progress.manual = at
			return nil
		}
	}
	return &start{at: at, manual: true, name: manualName(cronTab, seen, at), due: at}
}

// manualName returns the name of the Job of a run on demand: like that of a scheduled
// run, unless one has it or could have it. Then the second is mirrored at the creation of
// the CronTab, where no nominal time ever is.
func manualName(cronTab *stablev1.CronTab, seen observation, at time.Time) string {
	taken := seen.times != nil && seen.times.has(at)
	for _, r := range seen.runs {
		taken = taken || !r.manual && r.at.Equal(at)
	}
	if created := cronTab.CreationTimestamp.Unix(); taken && at.Unix() > created {
		at = time.Unix(2*created-at.Unix(), 0)
	}
	return jobName(cronTab, at)
}
