package crontab

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

// memory is what this process knows of a CronTab and its cache may not know yet. It is
// lost with the process; the status and the Jobs are what lasts.
type memory struct {
	uid types.UID
	// loaded says that progress is set: it goes before what the cache says.
	loaded   bool
	progress progress
	// verified is when the API server itself confirmed the progress.
	verified time.Time
	// waiting is since when runs were started and all else was left for later; zero if nothing was.
	waiting time.Time
	// slow says that the last create took the API server long.
	slow bool
	// warned is the request for a run that was warned about.
	warned string
	// blocked is when the last run was due that had to wait for another, and failed when
	// the last Job failed that was told of.
	blocked, failed time.Time

	// written is a status that the cache does not have yet.
	written *writtenStatus

	// expected are Jobs that were created and have not been seen in the cache, by name.
	// Handlers of events take them away.
	mu       sync.Mutex
	expected map[string]run
}

// writtenStatus is a status that was written over the version before, and is that of the
// version after.
type writtenStatus struct {
	before, after string
	status        stablev1.CronTabStatus
}

// load returns the progress of the CronTab: what is remembered, or else what the status
// says and the Jobs prove.
func (m *memory) load(recorded progress, runs []run) progress {
	if !m.loaded {
		m.progress, m.loaded = recorded.proven(runs), true
	}
	return m.progress
}

// catchUp puts the status that was written last into a CronTab from a cache that is
// behind.
func (m *memory) catchUp(cronTab *stablev1.CronTab) {
	switch {
	case m.written == nil:
	case m.written.before == cronTab.ResourceVersion:
		cronTab.ResourceVersion = m.written.after
		m.written.status.DeepCopyInto(&cronTab.Status)
	default:
		// No other version was between these two, or the write had been refused.
		m.written = nil
	}
}

// expect notes that a Job is about to be created.
func (m *memory) expect(r run) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.expected == nil {
		m.expected = map[string]run{}
	}
	m.expected[r.name] = r
}

// created completes the note about a Job, if no event has come for it.
func (m *memory) created(r run) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, found := m.expected[r.name]; found {
		m.expected[r.name] = r
	}
}

// met drops the note about a Job of that name: the cache has it, or had it, or it was
// never created.
func (m *memory) met(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.expected, name)
	if len(m.expected) == 0 {
		m.expected = nil
	}
}

// addExpected returns runs with those that the cache does not have yet.
func (m *memory) addExpected(runs []run) []run {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, r := range m.expected {
		if !slices.ContainsFunc(runs, func(seen run) bool { return seen.name == name }) {
			runs = append(runs, r)
		}
	}
	return runs
}

// memories are those of all CronTabs.
type memories struct {
	mu  sync.Mutex
	all map[client.ObjectKey]*memory
}

func newMemories() *memories { return &memories{all: map[client.ObjectKey]*memory{}} }

// of returns the memory of a CronTab; empty if there is none, or it was one of the same
// name.
func (s *memories) of(cronTab *stablev1.CronTab) *memory {
	key := client.ObjectKeyFromObject(cronTab)
	s.mu.Lock()
	defer s.mu.Unlock()
	m, found := s.all[key]
	if !found || m.uid != cronTab.UID {
		m = &memory{uid: cronTab.UID}
		s.all[key] = m
	}
	return m
}

// find returns the memory of the CronTab with that key and UID; nil if there is none.
func (s *memories) find(key client.ObjectKey, uid types.UID) *memory {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.all[key]; m != nil && m.uid == uid {
		return m
	}
	return nil
}

// forget drops the memory of a CronTab that is gone.
func (s *memories) forget(key client.ObjectKey, uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.all[key]
	if m == nil || m.uid != uid {
		return false
	}
	delete(s.all, key)
	return true
}
