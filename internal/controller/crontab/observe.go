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
	// activeSince is when this process began to look after CronTabs.
	activeSince time.Time
	// times is the timetable; nil if the spec has a mistake, which invalid is.
	schedule *schedule
	invalid  *specError
	// progress is how far the CronTab has come, and recorded what its status in the API
	// says of that.
	progress, recorded progress
	// runs are the Jobs that it controls, by their times.
	runs []run
	// waiting is since when runs were started and all else was left for later; zero if nothing was.
	deferredSince time.Time
}

// observe reads what there is. What this process knows better than its cache wins.
func (r *Reconciler) observe(ctx context.Context, cronTab *stablev1.CronTab, st *state) (observation, error) {
	seen := observation{activeSince: r.activeSince(), recorded: progressFromStatus(&cronTab.Status), deferredSince: st.deferredSince}
	seen.schedule, seen.invalid = newSchedule(cronTab)
	var jobs batchv1.JobList
	err := r.client.List(ctx, &jobs, client.InNamespace(cronTab.Namespace),
		client.MatchingFields{jobOwner: string(cronTab.UID)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return seen, fmt.Errorf("list the Jobs of CronTab %s/%s: %w", cronTab.Namespace, cronTab.Name, err)
	}
	for i := range jobs.Items {
		seen.runs = append(seen.runs, runOf(&jobs.Items[i]))
	}
	seen.runs = st.addExpectedRuns(seen.runs)
	slices.SortFunc(seen.runs, byTime)
	seen.progress = st.loadProgress(seen.recorded, seen.runs)
	return seen, nil
}

// zone returns the time zone of the CronTab, or UTC.
func (o observation) zone() *time.Location {
	if o.schedule == nil {
		return time.UTC
	}
	return o.schedule.location
}

// isRecorded reports whether the status in the API says that a run has happened, so that
// its Job may go.
func (o observation) isRecorded(cronTab *stablev1.CronTab, r run) bool {
	if r.manual {
		// If something else is asked for by now, this one is not started again.
		at, _ := requestedTime(cronTab)
		return r.at.Equal(o.recorded.lastManual) || !r.at.Equal(at)
	}
	return !r.at.After(o.recorded.decidedUntil) && !slices.ContainsFunc(o.recorded.queued, r.at.Equal)
}

// overHistoryLimit returns the finished runs with an outcome that are more than a limit, the oldest
// ones.
func (o observation) overHistoryLimit(outcome runPhase, limit int32) []run {
	var finished []run
	for _, r := range o.runs {
		if r.phase == outcome && !r.deleting {
			finished = append(finished, r)
		}
	}
	if len(finished) <= int(limit) {
		return nil
	}
	slices.SortStableFunc(finished, func(a, b run) int { return a.startTime.Compare(b.startTime) })
	return finished[:len(finished)-int(limit)]
}

// outcome is how far a run has come.
type runPhase string

const (
	active    runPhase = "active"
	succeeded runPhase = "succeeded"
	failed    runPhase = "failed"
)

// run is a Job of a CronTab.
type run struct {
	// job is the Job; nil if it was created just now and the cache does not know it.
	// It is shared with the cache and must not be changed.
	job *batchv1.Job

	name            string
	uid             types.UID
	resourceVersion string

	// at is the nominal time of a scheduled run, or what asked for a manual one.
	at     time.Time
	manual bool

	phase runPhase
	// finishTime is when it succeeded or failed, begun when it was started.
	finishTime, startTime time.Time
	// deleting says that it is about to go.
	deleting bool
}

// runOf returns the run of a Job that a CronTab controls.
func runOf(job *batchv1.Job) run {
	r := run{
		job: job, name: job.Name, uid: job.UID, resourceVersion: job.ResourceVersion,
		deleting:  job.DeletionTimestamp != nil,
		phase:     active,
		startTime: job.CreationTimestamp.Time,
	}
	if job.Status.StartTime != nil {
		r.startTime = job.Status.StartTime.Time
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
			r.phase, r.finishTime = succeeded, condition.LastTransitionTime.Time
			if job.Status.CompletionTime != nil {
				r.finishTime = job.Status.CompletionTime.Time
			}
		case batchv1.JobFailed:
			r.phase, r.finishTime = failed, condition.LastTransitionTime.Time
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

// activeRuns returns the runs that count for the limit of concurrent ones: those that
// have not finished, and those whose pods may not be gone yet.
func activeRuns(runs []run) []run {
	return slices.DeleteFunc(slices.Clone(runs), func(r run) bool { return r.phase != active && !r.deleting })
}

// progress is how far a CronTab has come in its timetable.
type progress struct {
	// hash stands for what made the times below.
	hash string
	// until is the last nominal time that is decided, or the time since which the
	// timetable holds.
	decidedUntil time.Time
	// queued are nominal times up to until whose runs have still to be started, the
	// earliest first.
	queued []time.Time
	// lastScheduled is the nominal time of the run that was started last.
	lastScheduled time.Time
	// lastManual is the request whose run was started last.
	lastManual time.Time
	// missed counts the runs that were due and will never be started.
	missed int64
}

// progressFromStatus returns what a status says.
func progressFromStatus(status *stablev1.CronTabStatus) progress {
	p := progress{
		hash:          status.ScheduleHash,
		decidedUntil:  fromMetaTime(status.ScheduledUntil),
		lastScheduled: fromMetaTime(status.LastScheduleTime),
		lastManual:    fromMetaTime(status.LastManualRunTime),
		missed:        status.MissedRuns,
	}
	for _, nominal := range status.QueuedTimes {
		p.queued = append(p.queued, nominal.Time)
	}
	return p
}

// writeTo writes it into a status.
func (p progress) writeTo(status *stablev1.CronTabStatus) {
	status.ScheduleHash = p.hash
	status.ScheduledUntil = toMetaTime(p.decidedUntil)
	status.LastScheduleTime = toMetaTime(p.lastScheduled)
	status.LastManualRunTime = toMetaTime(p.lastManual)
	status.MissedRuns = p.missed
	status.QueuedTimes = nil
	for _, nominal := range p.queued {
		status.QueuedTimes = append(status.QueuedTimes, *toMetaTime(nominal))
	}
}

// clone returns a copy that shares nothing that changes.
func (p progress) clone() progress {
	p.queued = slices.Clone(p.queued)
	return p
}

// equal reports whether both say the same.
func (p progress) equal(other progress) bool {
	return p.hash == other.hash && p.decidedUntil.Equal(other.decidedUntil) && slices.EqualFunc(p.queued, other.queued, time.Time.Equal) &&
		p.lastScheduled.Equal(other.lastScheduled) && p.lastManual.Equal(other.lastManual) && p.missed == other.missed
}

// afterStart returns the progress after a run was started.
func (p progress) afterStart(s *pendingRun) progress {
	p = p.clone()
	if s.manual {
		p.lastManual = s.at
		return p
	}
	p.queued = slices.DeleteFunc(p.queued, s.at.Equal)
	p.lastScheduled = s.at
	return p
}

// recoverFromJobs returns the progress with what the Jobs that exist prove: runs are started in
// the order of their times, so that everything up to the latest one is decided, even if
// the status that said so was lost.
func (p progress) recoverFromJobs(runs []run) progress {
	p = p.clone()
	for i := range runs {
		if r := &runs[i]; !r.manual && r.at.After(p.decidedUntil) {
			p.decidedUntil = r.at
		}
	}
	for i := range runs {
		r := &runs[i]
		if r.manual {
			continue
		}
		if r.at.After(p.lastScheduled) {
			p.lastScheduled = r.at
		}
		p.queued = slices.DeleteFunc(p.queued, func(nominal time.Time) bool { return !nominal.After(r.at) })
	}
	return p
}

func fromMetaTime(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// toMetaTime returns t as a status has it, in whole seconds; nil for the zero time.
func toMetaTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	// In the zone in which a client reads it, so that nothing seems to have changed.
	return &metav1.Time{Time: t.Truncate(time.Second).Local()}
}
