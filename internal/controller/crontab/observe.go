package crontab

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/crontab"
	"github.com/keelson-dev/keelson/internal/kube"
)

// observation is the observed state of a CronTab and its Jobs.
type observation struct {
	// activeSince is when this process became the active controller.
	activeSince time.Time
	// verifiedAt is when the API server last confirmed the progress, zero if it has not, and stalledAt when this process last stalled.
	verifiedAt, stalledAt time.Time
	// postponed means that a late run has waited for those that are due now.
	postponed bool
	// schedule is nil if the spec is invalid; then invalid says why.
	schedule *schedule
	invalid  *crontab.SpecError
	// progress is the current progress, recorded the one in the status, and cached the one in the status that the cache has.
	progress, recorded, cached progress
	// runs are the Jobs controlled by the CronTab, ordered by time.
	runs []run
	// predecessors are the CronTabs in spec.after, and successors those that run after this one. circle are the names of CronTabs
	// that run after each other; nil if there are none.
	predecessors []predecessor
	successors   []stablev1.CronTab
	circle       []string
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

// observe reads the Jobs of a CronTab from the cache, in which its status has the cached progress. State in memory that is newer than the
// cache takes precedence.
func (r *Reconciler) observe(ctx context.Context, cronTab *stablev1.CronTab, cached progress, st *state) (observation, error) {
	seen := observation{activeSince: r.activeSince(), stuckAfter: r.stuckAfter, cached: cached, recorded: progressFromStatus(&cronTab.Status),
		postponed: st.postponed, deferredSince: st.deferredSince, openRequest: st.openRequest}
	seen.schedule, seen.invalid = st.scheduleOf(cronTab)
	var err error
	if seen.runs, err = r.runsOf(ctx, cronTab); err != nil {
		return seen, err
	}
	if err := r.observeRelatives(ctx, cronTab, &seen); err != nil {
		return seen, err
	}
	seen.runs = st.addExpectedRuns(seen.runs)
	slices.SortFunc(seen.runs, byTime)
	seen.progress = st.loadProgress(cached, seen.recorded, seen.runs)
	seen.verifiedAt = st.verifiedAt
	seen.stalledAt = r.wakeups.lastStall()
	return seen, nil
}

// runsOf reads the Jobs of a CronTab from the cache.
func (r *Reconciler) runsOf(ctx context.Context, cronTab *stablev1.CronTab) ([]run, error) {
	var jobs batchv1.JobList
	err := r.Client.List(ctx, &jobs, client.InNamespace(cronTab.Namespace),
		client.MatchingFields{jobOwner: string(cronTab.UID)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list the Jobs of CronTab %s/%s: %w", cronTab.Namespace, cronTab.Name, err)
	}
	var runs []run
	for i := range jobs.Items {
		runs = append(runs, runOf(&jobs.Items[i]))
	}
	return runs, nil
}

// observeLive repeats observe with the CronTab from the API server. It returns a nil CronTab if
// that is gone. If another process has written the status, the progress in memory is discarded.
func (r *Reconciler) observeLive(ctx context.Context, cached *stablev1.CronTab, seen observation, st *state) (*stablev1.CronTab, observation, error) {
	current := &stablev1.CronTab{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(cached), current); err != nil {
		return nil, seen, kube.Named(client.IgnoreNotFound(err), "get", "CronTab", cached.Namespace, cached.Name)
	}
	if current.UID != cached.UID || !current.DeletionTimestamp.IsZero() {
		return nil, seen, nil
	}
	if !progressFromStatus(&current.Status).equal(seen.recorded) {
		st.ahead, st.verifiedAt = nil, time.Time{}
	}
	seen, err := r.observe(ctx, current, seen.cached, st)
	if err != nil {
		return nil, seen, err
	}
	// Even if act does not follow, because the cache may still have an older progress the next time.
	st.advance(seen.cached, seen.progress)
	st.verifiedAt = r.Clock.Now()
	return current, seen, nil
}

// scheduleHash returns the hash of the schedule, also of an invalid one.
func (o observation) scheduleHash(cronTab *stablev1.CronTab) string {
	if o.schedule == nil {
		return scheduleHash(&cronTab.Spec)
	}
	return o.schedule.hash
}

// zone returns the time zone of the CronTab, UTC by default.
func (o observation) zone() *time.Location {
	if o.schedule == nil {
		return time.UTC
	}
	return o.schedule.Location
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
	// backfill is the request of the backfill that the run belongs to; zero if it belongs to none.
	backfill time.Time
	// follows are the Jobs that the run follows by spec.after, perhaps with others that were followed before; nil if it started
	// otherwise, and empty if they were gone.
	follows []types.UID

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
		backfill:  parseTime(job.Annotations[stablev1.BackfillRequestedAtAnnotation]),
	}
	if text, ok := job.Annotations[stablev1.FollowsAnnotation]; ok {
		r.follows = []types.UID{}
		for uid := range strings.FieldsFuncSeq(text, func(c rune) bool { return c == ',' }) {
			r.follows = append(r.follows, types.UID(uid))
		}
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
	switch condition, at := crontab.Ended(job); {
	case condition == nil:
	case condition.Type == batchv1.JobComplete:
		r.phase, r.finishTime = succeeded, at
	default:
		r.phase, r.finishTime, r.reason = failed, at, condition.Reason
	}
	return r
}

// isScheduled reports whether the schedule started the run, not a request.
func (r run) isScheduled() bool { return !r.manual && r.backfill.IsZero() }

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
