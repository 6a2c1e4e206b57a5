package crontab

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/crontab"
)

// state is the in-memory state of a CronTab, which may be newer than the cache. It is lost with the
// process; status and Jobs are what persists.
type state struct {
	uid types.UID
	// schedule is the parsed schedule of a generation; nil if it has not been parsed or is invalid.
	schedule   *schedule
	generation int64
	// ahead is the progress if the status in the cache has another one; nil if it has this one.
	ahead *ahead
	// verifiedAt is when the API server last confirmed the progress; zero if it has not.
	verifiedAt time.Time
	// postponed means that a late run has waited for the runs of others that are due now, so that it may start.
	postponed bool
	// deferredSince is since when cleanup and status have been deferred in favor of due runs; zero
	// if they have not been.
	deferredSince time.Time
	// slowCreate means that the last creation of a Job was slow.
	slowCreate bool
	// openRequest is the request that had no run after the last reconcile; zero if there was none.
	openRequest time.Time
	// lastBlocked is the due time of the blocked run that the last event reported.
	lastBlocked time.Time
	// failure is the last failure that this process has seen, and stuck its last examination of
	// waiting Pods.
	failure *failure
	stuck   *stuckCheck

	// lastWrite is the last status update, if the cache may not have it yet.
	lastWrite *statusWrite

	// blocked means that the next run waits for an active one to end. Event handlers read it.
	blocked atomic.Bool

	// expectedRuns are Jobs that were created but have not been observed in the cache, by name.
	// Event handlers remove them.
	mu           sync.Mutex
	expectedRuns map[string]run
}

// statusWrite is a status update, with the resource versions before and after it.
type statusWrite struct {
	before, after string
	status        stablev1.CronTabStatus
}

// scheduleOf returns newSchedule of a CronTab, parsed once for each generation. Not so an invalid one: the time zone may be
// installed later.
func (st *state) scheduleOf(cronTab *stablev1.CronTab) (*schedule, *crontab.SpecError) {
	if st.schedule != nil && st.generation == cronTab.Generation {
		return st.schedule, nil
	}
	var invalid *crontab.SpecError
	st.schedule, invalid = newSchedule(cronTab)
	st.generation = cronTab.Generation
	return st.schedule, invalid
}

// schedule is the schedule of a CronTab with the hashes that its status records.
type schedule struct {
	*crontab.Schedule
	// hash is the scheduleHash.
	hash string
	// specHash is the specHash of a CronTab with suspendAfterFailures.
	specHash string
}

// newSchedule returns the schedule of a CronTab, suspended or not. It fails on an invalid spec that
// the CRD did not catch.
func newSchedule(cronTab *stablev1.CronTab) (*schedule, *crontab.SpecError) {
	times, mistakes := crontab.New(cronTab)
	if len(mistakes) > 0 {
		return nil, mistakes[0]
	}
	made := &schedule{Schedule: times, hash: scheduleHash(&cronTab.Spec)}
	if cronTab.Spec.SuspendAfterFailures != nil {
		made.specHash = specHash(cronTab)
	}
	return made, nil
}

// scheduleHash identifies all fields of a spec that determine the scheduled times. It must not
// change between versions of the controller: a CronTab with another hash restarts its progress.
func scheduleHash(spec *stablev1.CronTabSpec) string {
	made := struct {
		Schedules           []stablev1.Schedule
		TimeZone            string
		DaylightSaving      string
		NotBefore, NotAfter int64
		ExcludeDates        []stablev1.DateRange
		Suspend             bool
		After               []stablev1.Predecessor `json:",omitempty"`
	}{
		Schedules:      crontab.Schedules(spec),
		TimeZone:       string(spec.TimeZone),
		DaylightSaving: cmp.Or(string(spec.DaylightSaving), string(stablev1.DaylightSavingOnce)),
		ExcludeDates:   spec.ExcludeDates,
		Suspend:        ptr.Deref(spec.Suspend, false),
		After:          spec.After,
	}
	if spec.NotBefore != nil {
		made.NotBefore = spec.NotBefore.Unix()
	}
	if spec.NotAfter != nil {
		made.NotAfter = spec.NotAfter.Unix()
	}
	sum := sha256.Sum256(mustMarshal(made))
	return hex.EncodeToString(sum[:8])
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
	// streak is the runs that failed in a row.
	streak streak
	// backfill is the position in the last backfill.
	backfill backfill
	// followed are the Jobs that spec.after needs no longer, sorted.
	followed []types.UID
}

// progressFromStatus returns the progress that a status records.
func progressFromStatus(status *stablev1.CronTabStatus) progress {
	p := progress{
		hash:          status.ScheduleHash,
		decidedUntil:  fromMetaTime(status.ScheduledUntil),
		lastScheduled: fromMetaTime(status.LastScheduleTime),
		lastManual:    fromMetaTime(status.LastRunRequestedAt),
		missed:        status.MissedRuns,
		streak:        streakFromStatus(status.FailureStreak),
		backfill:      backfillFromStatus(status.Backfill),
		followed:      slices.Sorted(slices.Values(status.FollowedJobs)),
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
	status.FailureStreak = p.streak.toStatus()
	status.Backfill = p.backfill.toStatus(status.Backfill)
	status.FollowedJobs = p.followed
	status.QueuedTimes = nil
	for _, scheduled := range p.queued {
		status.QueuedTimes = append(status.QueuedTimes, *toMetaTime(scheduled))
	}
}

// clone returns a deep copy.
func (p progress) clone() progress {
	p.queued, p.followed = slices.Clone(p.queued), slices.Clone(p.followed)
	return p
}

// equal reports whether two progresses are the same.
func (p progress) equal(other progress) bool {
	return p.hash == other.hash && p.decidedUntil.Equal(other.decidedUntil) && slices.EqualFunc(p.queued, other.queued, time.Time.Equal) &&
		p.lastScheduled.Equal(other.lastScheduled) && p.lastManual.Equal(other.lastManual) && p.missed == other.missed &&
		p.streak.equal(other.streak) && p.backfill.equal(other.backfill) && slices.Equal(p.followed, other.followed)
}

// afterStart returns the progress after the start of a run.
func (p progress) afterStart(s *pendingRun) progress {
	p = p.clone()
	switch {
	case s.manual:
		p.lastManual = s.at
		return p
	case !s.backfill.IsZero():
		p.backfill.reached = s.at
		return p
	}
	p.queued = slices.DeleteFunc(p.queued, s.at.Equal)
	p.lastScheduled = s.at
	return p
}

// recoverFromJobs returns the progress, advanced by the evidence of existing Jobs. Runs are started
// in order, so everything up to the latest Job is decided, even if the status update was lost. What Jobs of spec.after prove,
// queueFollowing knows.
func (p progress) recoverFromJobs(runs []run) progress {
	p = p.clone()
	for i := range runs {
		if r := &runs[i]; r.isScheduled() && r.follows == nil && r.at.After(p.decidedUntil) {
			p.decidedUntil = r.at
		}
	}
	for i := range runs {
		r := &runs[i]
		if !r.isScheduled() {
			continue
		}
		if r.at.After(p.lastScheduled) {
			p.lastScheduled = r.at
		}
		if r.follows == nil {
			p.queued = slices.DeleteFunc(p.queued, func(scheduled time.Time) bool { return !scheduled.After(r.at) })
		}
	}
	return p
}

// ahead is a progress that the status in the cache does not have yet.
type ahead struct{ of, progress progress }

// advance remembers the progress, for as long as the cache has that one.
func (st *state) advance(cached, to progress) {
	if st.ahead = nil; !to.equal(cached) {
		st.ahead = &ahead{cached, to}
	}
}

// loadProgress returns the progress. If the cache has one that this process does not know, from another process, nothing is known but what
// is recorded, and the Jobs.
func (st *state) loadProgress(cached, recorded progress, runs []run) progress {
	switch {
	case st.ahead == nil:
	case st.ahead.progress.equal(cached):
		st.ahead = nil
	case !st.ahead.of.equal(cached):
		st.ahead, st.verifiedAt = nil, time.Time{}
	}
	switch {
	case st.verifiedAt.IsZero():
		return recorded.recoverFromJobs(runs)
	case st.ahead == nil:
		return recorded
	}
	return st.ahead.progress
}

// applyLastWrite adds the last status update to a CronTab from a stale cache.
func (st *state) applyLastWrite(cronTab *stablev1.CronTab) {
	switch {
	case st.lastWrite == nil:
	case st.lastWrite.before == cronTab.ResourceVersion:
		cronTab.ResourceVersion = st.lastWrite.after
		st.lastWrite.status.DeepCopyInto(&cronTab.Status)
	default:
		// The cache has caught up, or the object changed in between.
		st.lastWrite = nil
	}
}

// expectCreation expects the creation of a Job.
func (st *state) expectCreation(r run) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.expectedRuns == nil {
		st.expectedRuns = map[string]run{}
	}
	st.expectedRuns[r.name] = r
}

// confirmCreation completes an expectation with the created Job, if no event has come for it yet.
func (st *state) confirmCreation(r run) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if _, found := st.expectedRuns[r.name]; found {
		st.expectedRuns[r.name] = r
	}
}

// observeCreation removes the expectation of a Job: an event has come for it, or it was never
// created.
func (st *state) observeCreation(name string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	delete(st.expectedRuns, name)
	if len(st.expectedRuns) == 0 {
		st.expectedRuns = nil
	}
}

// addExpectedRuns adds to runs those that the cache does not have yet.
func (st *state) addExpectedRuns(runs []run) []run {
	st.mu.Lock()
	defer st.mu.Unlock()
	for name, r := range st.expectedRuns {
		if !slices.ContainsFunc(runs, func(seen run) bool { return seen.name == name }) {
			runs = append(runs, r)
		}
	}
	return runs
}

// stateStore holds the states of all CronTabs.
type stateStore struct {
	mu     sync.Mutex
	states map[client.ObjectKey]*state
}

func newStateStore() *stateStore { return &stateStore{states: map[client.ObjectKey]*state{}} }

// get returns the state of a CronTab, a new one if there is none for its UID.
func (s *stateStore) get(cronTab *stablev1.CronTab) *state {
	key := client.ObjectKeyFromObject(cronTab)
	s.mu.Lock()
	defer s.mu.Unlock()
	st, found := s.states[key]
	if !found || st.uid != cronTab.UID {
		st = &state{uid: cronTab.UID}
		s.states[key] = st
	}
	return st
}

// lookup returns the state of the CronTab with that key and UID, or nil.
func (s *stateStore) lookup(key client.ObjectKey, uid types.UID) *state {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.states[key]; st != nil && st.uid == uid {
		return st
	}
	return nil
}

// delete drops the state of the CronTab with that key and UID and reports whether there was one.
func (s *stateStore) delete(key client.ObjectKey, uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.states[key]
	if st == nil || st.uid != uid {
		return false
	}
	delete(s.states, key)
	return true
}
