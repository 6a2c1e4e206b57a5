package crontab

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

// state is what this process knows of a CronTab and its cache may not know yet. It is
// lost with the process; the status and the Jobs are what lasts.
type state struct {
	uid types.UID
	// progressLoaded says that progress is set: it goes before what the cache says.
	progressLoaded bool
	progress       progress
	// verifiedAt is when the API server itself confirmed the progress.
	verifiedAt time.Time
	// waiting is since when runs were started and all else was left for later; zero if nothing was.
	deferredSince time.Time
	// slow says that the last create took the API server long.
	slowCreate bool
	// lastInvalidRequest is the request for a run that was warned about.
	lastInvalidRequest string
	// lastBlocked is when the last run was due that had to wait for another, and failed when
	// the last Job failed that was told of.
	lastBlocked, lastFailure time.Time

	// lastWrite is a status that the cache does not have yet.
	lastWrite *statusWrite

	// expected are Jobs that were created and have not been seen in the cache, by name.
	// Handlers of events take them away.
	mu           sync.Mutex
	expectedRuns map[string]run
}

// statusWrite is a status that was written over the version before, and is that of the
// version after.
type statusWrite struct {
	before, after string
	status        stablev1.CronTabStatus
}

// loadProgress returns the progress of the CronTab: what is remembered, or else what the status
// says and the Jobs prove.
func (st *state) loadProgress(recorded progress, runs []run) progress {
	if !st.progressLoaded {
		st.progress, st.progressLoaded = recorded.recoverFromJobs(runs), true
	}
	return st.progress
}

// applyLastWrite puts the status that was written last into a CronTab from a cache that is
// behind.
func (st *state) applyLastWrite(cronTab *stablev1.CronTab) {
	switch {
	case st.lastWrite == nil:
	case st.lastWrite.before == cronTab.ResourceVersion:
		cronTab.ResourceVersion = st.lastWrite.after
		st.lastWrite.status.DeepCopyInto(&cronTab.Status)
	default:
		// No other version was between these two, or the write had been refused.
		st.lastWrite = nil
	}
}

// expect notes that a Job is about to be created.
func (st *state) expectCreation(r run) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.expectedRuns == nil {
		st.expectedRuns = map[string]run{}
	}
	st.expectedRuns[r.name] = r
}

// confirmCreation completes the note about a Job, if no event has come for it.
func (st *state) confirmCreation(r run) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if _, found := st.expectedRuns[r.name]; found {
		st.expectedRuns[r.name] = r
	}
}

// observeCreation drops the note about a Job of that name: the cache has it, or had it, or it was
// never created.
func (st *state) observeCreation(name string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	delete(st.expectedRuns, name)
	if len(st.expectedRuns) == 0 {
		st.expectedRuns = nil
	}
}

// addExpectedRuns returns runs with those that the cache does not have yet.
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

// stateStore are those of all CronTabs.
type stateStore struct {
	mu     sync.Mutex
	states map[client.ObjectKey]*state
}

func newStateStore() *stateStore { return &stateStore{states: map[client.ObjectKey]*state{}} }

// get returns the memory of a CronTab; empty if there is none, or it was one of the same
// name.
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

// lookup returns the memory of the CronTab with that key and UID; nil if there is none.
func (s *stateStore) lookup(key client.ObjectKey, uid types.UID) *state {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.states[key]; st != nil && st.uid == uid {
		return st
	}
	return nil
}

// delete drops the memory of a CronTab that is gone.
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
