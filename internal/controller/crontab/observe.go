package crontab

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

// observation is what there is.
type observation struct {
	// since is when this process began to look after CronTabs.
	since time.Time
	// times is the timetable; nil if the spec has a mistake, which invalid is.
	times   *timetable
	invalid *invalidError
	// progress is how far the CronTab has come, and recorded what its status in the API
	// says of that.
	progress, recorded progress
	// runs are the Jobs that it controls, by their times.
	runs []run
	// waiting is since when runs were started and all else was left for later; zero if nothing was.
	waiting time.Time
}

// observe reads what there is. What this process knows better than its cache wins.
func (r *Reconciler) observe(ctx context.Context, cronTab *stablev1.CronTab, m *memory) (observation, error) {
	seen := observation{since: r.since(), recorded: progressOf(&cronTab.Status), waiting: m.waiting}
	seen.times, seen.invalid = newTimetable(cronTab)
	var jobs batchv1.JobList
	err := r.client.List(ctx, &jobs, client.InNamespace(cronTab.Namespace),
		client.MatchingFields{jobOwner: string(cronTab.UID)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return seen, fmt.Errorf("list the Jobs of CronTab %s/%s: %w", cronTab.Namespace, cronTab.Name, err)
	}
	for i := range jobs.Items {
		seen.runs = append(seen.runs, runOf(&jobs.Items[i]))
	}
	seen.runs = m.addExpected(seen.runs)
	slices.SortFunc(seen.runs, byTime)
	seen.progress = m.load(seen.recorded, seen.runs)
	return seen, nil
}

// zone returns the time zone of the CronTab, or UTC.
func (o observation) zone() *time.Location {
	if o.times == nil {
		return time.UTC
	}
	return o.times.location
}

// isRecorded reports whether the status in the API says that a run has happened, so that
// its Job may go.
func (o observation) isRecorded(cronTab *stablev1.CronTab, r run) bool {
	if r.manual {
		// If something else is asked for by now, this one is not started again.
		at, _ := requested(cronTab)
		return r.at.Equal(o.recorded.manual) || !r.at.Equal(at)
	}
	return !r.at.After(o.recorded.until) && !slices.ContainsFunc(o.recorded.waiting, r.at.Equal)
}

// beyond returns the finished runs with an outcome that are more than a limit, the oldest
// ones.
func (o observation) beyond(outcome outcome, limit int32) []run {
	var finished []run
	for _, r := range o.runs {
		if r.outcome == outcome && !r.deleting {
			finished = append(finished, r)
		}
	}
	if len(finished) <= int(limit) {
		return nil
	}
	slices.SortStableFunc(finished, func(a, b run) int { return a.begun.Compare(b.begun) })
	return finished[:len(finished)-int(limit)]
}

// outcome is how far a run has come.
type outcome string

const (
	active    outcome = "active"
	succeeded outcome = "succeeded"
	failed    outcome = "failed"
)

// run is a Job of a CronTab.
type run struct {
	// job is the Job; nil if it was created just now and the cache does not know it.
	// It is shared with the cache and must not be changed.
	job *batchv1.Job

	name    string
	uid     types.UID
	version string

	// at is the nominal time of a scheduled run, or what asked for a manual one.
	at     time.Time
	manual bool

	outcome outcome
	// finished is when it succeeded or failed, begun when it was started.
	finished, begun time.Time
	// deleting says that it is about to go.
	deleting bool
}

// runOf returns the run of a Job that a CronTab controls.
func runOf(job *batchv1.Job) run {
	r := run{
		job: job, name: job.Name, uid: job.UID, version: job.ResourceVersion,
		deleting: job.DeletionTimestamp != nil,
		outcome:  active,
		begun:    job.CreationTimestamp.Time,
	}
	if job.Status.StartTime != nil {
		r.begun = job.Status.StartTime.Time
	}
	if text, ok := job.Annotations[stablev1.RunRequestedAtAnnotation]; ok {
		r.manual = true
		r.at = parseTime(text)
	} else {
		r.at = parseTime(job.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
	}
	for _, condition := range job.Status.Conditions {
		if condition.Status != corev1.ConditionTrue {
			continue
		}
		switch condition.Type {
		case batchv1.JobComplete:
			r.outcome, r.finished = succeeded, condition.LastTransitionTime.Time
			if job.Status.CompletionTime != nil {
				r.finished = job.Status.CompletionTime.Time
			}
		case batchv1.JobFailed:
			r.outcome, r.finished = failed, condition.LastTransitionTime.Time
		}
	}
	return r
}

// parseTime returns the time of an annotation; zero if it is none.
func parseTime(text string) time.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return at
}

// byTime orders runs by their times.
func byTime(a, b run) int {
	return cmp.Or(a.at.Compare(b.at), strings.Compare(a.name, b.name))
}

// occupying returns the runs that count for the limit of concurrent ones: those that
// have not finished, and those whose pods may not be gone yet.
func occupying(runs []run) []run {
	return slices.DeleteFunc(slices.Clone(runs), func(r run) bool { return r.outcome != active && !r.deleting })
}

// progress is how far a CronTab has come in its timetable.
type progress struct {
	// hash stands for what made the times below.
	hash string
	// until is the last nominal time that is decided, or the time since which the
	// timetable holds.
	until time.Time
	// waiting are nominal times up to until whose runs have still to be started, the
	// earliest first.
	waiting []time.Time
	// last is the nominal time of the run that was started last.
	last time.Time
	// manual is the request whose run was started last.
	manual time.Time
	// missed counts the runs that were due and will never be started.
	missed int64
}

// progressOf returns what a status says.
func progressOf(status *stablev1.CronTabStatus) progress {
	p := progress{
		hash:   status.ScheduleHash,
		until:  timeOf(status.ScheduledUntil),
		last:   timeOf(status.LastScheduleTime),
		manual: timeOf(status.LastManualRunTime),
		missed: status.MissedRuns,
	}
	for _, nominal := range status.QueuedTimes {
		p.waiting = append(p.waiting, nominal.Time)
	}
	return p
}

// record writes it into a status.
func (p progress) record(status *stablev1.CronTabStatus) {
	status.ScheduleHash = p.hash
	status.ScheduledUntil = metaTime(p.until)
	status.LastScheduleTime = metaTime(p.last)
	status.LastManualRunTime = metaTime(p.manual)
	status.MissedRuns = p.missed
	status.QueuedTimes = nil
	for _, nominal := range p.waiting {
		status.QueuedTimes = append(status.QueuedTimes, *metaTime(nominal))
	}
}

// clone returns a copy that shares nothing that changes.
func (p progress) clone() progress {
	p.waiting = slices.Clone(p.waiting)
	return p
}

// equals reports whether both say the same.
func (p progress) equals(other progress) bool {
	return p.hash == other.hash && p.until.Equal(other.until) && slices.EqualFunc(p.waiting, other.waiting, time.Time.Equal) &&
		p.last.Equal(other.last) && p.manual.Equal(other.manual) && p.missed == other.missed
}

// started returns the progress after a run was started.
func (p progress) started(s *start) progress {
	p = p.clone()
	if s.manual {
		p.manual = s.at
		return p
	}
	p.waiting = slices.DeleteFunc(p.waiting, s.at.Equal)
	p.last = s.at
	return p
}

// proven returns the progress with what the Jobs that exist prove: runs are started in
// the order of their times, so that everything up to the latest one is decided, even if
// the status that said so was lost.
func (p progress) proven(runs []run) progress {
	p = p.clone()
	for i := range runs {
		if r := &runs[i]; !r.manual && r.at.After(p.until) {
			p.until = r.at
		}
	}
	for i := range runs {
		r := &runs[i]
		if r.manual {
			continue
		}
		if r.at.After(p.last) {
			p.last = r.at
		}
		p.waiting = slices.DeleteFunc(p.waiting, func(nominal time.Time) bool { return !nominal.After(r.at) })
	}
	return p
}

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// metaTime returns t as a status has it, in whole seconds; nil for the zero time.
func metaTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	// In the zone in which a client reads it, so that nothing seems to have changed.
	return &metav1.Time{Time: t.Truncate(time.Second).Local()}
}
