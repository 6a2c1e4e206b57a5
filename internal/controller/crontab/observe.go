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
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

// observation is the observed state of a CronTab and its Jobs.
type observation struct {
	// activeSince is when this process became the active controller.
	activeSince time.Time
	// schedule is nil if the spec is invalid; then invalid says why.
	schedule *schedule
	invalid  *specError
	// progress is the current progress, and recorded the progress according to the status in the
	// API.
	progress, recorded progress
	// runs are the Jobs controlled by the CronTab, ordered by time.
	runs []run
	// stuckAfter is how long a run may wait for its Pods; zero means for ever.
	stuckAfter time.Duration
	// stuck is the last examination of the run that waits longest; nil if none waits.
	stuck *stuckCheck
	// openRequest is the request that had no run after the last reconcile; zero if there was none.
	openRequest time.Time
	// failure is the last failure if the status does not record it yet, or nil.
	failure *failure
	// deferredSince is since when cleanup and status have been deferred in favor of due runs; zero
	// if they have not been.
	deferredSince time.Time
}

// observe reads the Jobs of a CronTab from the cache. State in memory that is newer than the cache
// takes precedence.
func (r *Reconciler) observe(ctx context.Context, cronTab *stablev1.CronTab, st *state) (observation, error) {
	seen := observation{activeSince: r.activeSince(), recorded: progressFromStatus(&cronTab.Status), deferredSince: st.deferredSince,
		stuckAfter: r.stuckAfter, openRequest: st.openRequest}
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

// zone returns the time zone of the CronTab, UTC by default.
func (o observation) zone() *time.Location {
	if o.schedule == nil {
		return time.UTC
	}
	return o.schedule.location
}

// isRecorded reports whether the status in the API records a run, so that its Job may be deleted.
func (o observation) isRecorded(cronTab *stablev1.CronTab, r run) bool {
	if r.manual {
		// After a newer request, this one is not started again.
		return r.at.Equal(o.recorded.lastManual) || !r.at.Equal(requestedTime(cronTab))
	}
	return !r.at.After(o.recorded.decidedUntil) && !slices.ContainsFunc(o.recorded.queued, r.at.Equal)
}

// overHistoryLimit returns the oldest finished runs in a phase that exceed the history limit.
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

// runPhase is the state of a Job.
type runPhase string

const (
	active    runPhase = "active"
	succeeded runPhase = "succeeded"
	failed    runPhase = "failed"
)

// run is a Job of a CronTab.
type run struct {
	// job is the Job, shared with the cache and read-only. It is nil if the Job was just created
	// and the cache does not have it yet.
	job *batchv1.Job

	name            string
	uid             types.UID
	resourceVersion string

	// at is the scheduled time, or for a manual run the requested time.
	at     time.Time
	manual bool

	phase runPhase
	// finishTime is when the Job succeeded or failed, startTime when it started.
	finishTime, startTime time.Time
	// reason is the reason of the failure according to the Job.
	reason string
	// deleting means that the Job has a deletion timestamp, ready that it has a ready Pod, and
	// suspended that its spec.suspend is true.
	deleting, ready, suspended bool
}

// runOf returns the run of a Job.
func runOf(job *batchv1.Job) run {
	r := run{
		job: job, name: job.Name, uid: job.UID, resourceVersion: job.ResourceVersion,
		deleting:  job.DeletionTimestamp != nil,
		ready:     ptr.Deref(job.Status.Ready, 0) > 0,
		suspended: ptr.Deref(job.Spec.Suspend, false),
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
			r.phase, r.finishTime, r.reason = failed, condition.LastTransitionTime.Time, condition.Reason
		}
	}
	return r
}

// parseTime parses the time in an annotation; zero if it is invalid.
func parseTime(text string) time.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return at
}

// byTime orders runs by time.
func byTime(a, b run) int {
	return cmp.Or(a.at.Compare(b.at), strings.Compare(a.name, b.name))
}

// activeRuns returns the runs that count toward the concurrency limit: those that have not
// finished, and those whose Pods may still be terminating.
func activeRuns(runs []run) []run {
	return slices.DeleteFunc(slices.Clone(runs), func(r run) bool { return r.phase != active && !r.deleting })
}

// progress is the position of a CronTab in its schedule.
type progress struct {
	// hash identifies the schedule to which the times below belong.
	hash string
	// decidedUntil is the scheduled time up to which all runs are decided, or the start of the
	// current schedule.
	decidedUntil time.Time
	// queued are the scheduled times up to decidedUntil of runs that are waiting to start, earliest
	// first.
	queued []time.Time
	// lastScheduled is the scheduled time of the last run that was started.
	lastScheduled time.Time
	// lastManual is the last request whose run was started.
	lastManual time.Time
	// missed is the number of runs that were due and will never start.
	missed int64
}

// progressFromStatus returns the progress that a status records.
func progressFromStatus(status *stablev1.CronTabStatus) progress {
	p := progress{
		hash:          status.ScheduleHash,
		decidedUntil:  fromMetaTime(status.ScheduledUntil),
		lastScheduled: fromMetaTime(status.LastScheduleTime),
		lastManual:    fromMetaTime(status.LastRunRequestedAt),
		missed:        status.MissedRuns,
	}
	for _, scheduled := range status.QueuedTimes {
		p.queued = append(p.queued, scheduled.Time)
	}
	return p
}

// writeTo records the progress in a status.
func (p progress) writeTo(status *stablev1.CronTabStatus) {
	status.ScheduleHash = p.hash
	status.ScheduledUntil = toMetaTime(p.decidedUntil)
	status.LastScheduleTime = toMetaTime(p.lastScheduled)
	status.LastRunRequestedAt = toMetaTime(p.lastManual)
	status.MissedRuns = p.missed
	status.QueuedTimes = nil
	for _, scheduled := range p.queued {
		status.QueuedTimes = append(status.QueuedTimes, *toMetaTime(scheduled))
	}
}

// clone returns a deep copy.
func (p progress) clone() progress {
	p.queued = slices.Clone(p.queued)
	return p
}

// equal reports whether two progresses are the same.
func (p progress) equal(other progress) bool {
	return p.hash == other.hash && p.decidedUntil.Equal(other.decidedUntil) && slices.EqualFunc(p.queued, other.queued, time.Time.Equal) &&
		p.lastScheduled.Equal(other.lastScheduled) && p.lastManual.Equal(other.lastManual) && p.missed == other.missed
}

// afterStart returns the progress after the start of a run.
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

// recoverFromJobs returns the progress, advanced by the evidence of existing Jobs. Runs are started
// in order, so everything up to the latest Job is decided, even if the status update was lost.
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
		p.queued = slices.DeleteFunc(p.queued, func(scheduled time.Time) bool { return !scheduled.After(r.at) })
	}
	return p
}

func fromMetaTime(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// toMetaTime returns t in whole seconds for a status; nil for the zero time.
func toMetaTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	// Use the zone that decoding produces, so that comparisons see no change.
	return &metav1.Time{Time: t.Truncate(time.Second).Local()}
}
