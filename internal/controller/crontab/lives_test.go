package crontab

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/stories"
)

// life is a CronTab to which random things happen: the clock jumps, the process is killed, requests are lost, and the cache is old.
type life struct {
	*fixture
	*rand.Rand
	// past is the cache of the process; nil: the API itself. seen is an earlier state of the API.
	past, seen client.Reader
	// writes is how many writes succeed until the fault; the moment of the fault is before or after the next one.
	writes int
	moment harness.Moment
	kills  bool
	// earliest is the earliest time to which the clock jumps, and latest the latest time that it had.
	earliest, latest time.Time
	// ran are the times of the runs of another CronTab.
	ran []time.Duration
}

// lifeKind is what a life is about.
type lifeKind struct {
	name   string
	change mutation
	// want returns how many Jobs each time has in the end, relative to the first minute. Without it, each has at most one.
	want func(*life) map[time.Duration]int
}

const lifeBackfill = 12 // times

var lifeKinds = []lifeKind{
	{"All, Allow", func(c *stablev1.CronTab) { withMissedRuns(stablev1.AllMissedRuns, 1000)(c) }, (*life).everyMinute},
	{"All, Queue", func(c *stablev1.CronTab) {
		withMissedRuns(stablev1.AllMissedRuns, 1000)(c)
		withPolicy(stablev1.QueueConcurrent)(c)
	}, (*life).everyMinute},
	{"Latest, TTL", withTTL, nil},
	{"Skip, Forbid", func(c *stablev1.CronTab) {
		withMissedRuns(stablev1.SkipMissedRuns, 1)(c)
		withPolicy(stablev1.ForbidConcurrent)(c)
	}, nil},
	{"backfill", func(c *stablev1.CronTab) {
		now := time.Now().Truncate(time.Minute)
		c.Spec.Suspend = ptr.To(true)
		c.Spec.Backfill = &stablev1.Backfill{
			RequestedAt: metav1.NewTime(now), From: metav1.NewTime(now.Add((1 - lifeBackfill) * time.Minute)), To: metav1.NewTime(now),
			Reprocess: stablev1.ReprocessNone, MaxConcurrency: 3, Order: stablev1.LatestFirst,
		}
	}, (*life).backfilled},
	{"after another", withAfter(stablev1.AfterCompleted, "first"), (*life).followed},
	{"after another, Queue", func(c *stablev1.CronTab) {
		withAfter(stablev1.AfterCompleted, "first")(c)
		withPolicy(stablev1.QueueConcurrent)(c)
		withTTL(c)
	}, (*life).followed},
}

// TestLives lives some lives of each kind, always the same ones: whatever happens, each time has one Job, or as missedRuns says.
func TestLives(t *testing.T) {
	testLives(t, lifeKinds, 0, 1, 2)
	testLives(t, lifeKinds[len(lifeKinds)-1:], 3462412791520688824, 6974478585182807110) // found by TestLongLives
}

// TestLongLives lives many others.
func TestLongLives(t *testing.T) {
	for range 150 {
		testLives(t, lifeKinds, rand.Uint64())
	}
}

func testLives(t *testing.T, kinds []lifeKind, seeds ...uint64) {
	for _, seed := range seeds {
		for _, kind := range kinds {
			t.Run(fmt.Sprintf("%s, seed %d", kind.name, seed), func(t *testing.T) {
				t.Parallel()
				live(t, kind, seed)
			})
		}
	}
}

func live(t *testing.T, kind lifeKind, seed uint64) {
	l := &life{fixture: startFixture(t, stories.Memory), Rand: rand.New(rand.NewPCG(seed, 0))}
	first := newCronTab(withSuspend)
	first.ObjectMeta = metav1.ObjectMeta{Namespace: l.Namespace, Name: "first"}
	l.Do(l.Client.Create(t.Context(), first))
	l.since = l.Clock.Now().Truncate(time.Minute)
	l.runs = l.countCreations(l.since)
	l.create(kind.change)
	l.earliest, l.latest = l.Clock.Now(), l.Clock.Now()
	l.newProcess()
	for range 60 {
		l.happen(len(newCronTab(kind.change).Spec.After) > 0)
		l.step()
		if l.expectNoRunTwice(); l.Failed() {
			return
		}
	}
	l.end()
	want := map[time.Duration]int{}
	if kind.want != nil {
		want = kind.want(l)
	} else {
		for at := range l.runs.created {
			want[at] = 1
		}
	}
	if diff := cmp.Diff(want, l.runs.created); diff != "" {
		l.Errorf("Jobs of each time (-want +got):\n%s", diff)
	}
	spec := l.Object().Spec
	for limit, phase := range map[*int32]runPhase{spec.SuccessfulJobsHistoryLimit: succeeded, spec.FailedJobsHistoryLimit: failed} {
		if kept := l.countJobs(phase); kept > int(*limit) {
			l.Errorf("%d Jobs are kept that %s", kept, phase)
		}
	}
}

// chance is true once in n times.
func (l *life) chance(n int) bool { return l.IntN(n) == 0 }

// newProcess starts a process. Its writes fail as l says.
func (l *life) newProcess() {
	written := harness.Observe(l.Client,
		func(r harness.Request) error { return l.fault(harness.Before, r) },
		func(r harness.Request) error { return l.fault(harness.After, r) })
	l.UseClient(harness.ReadThrough(written, func() client.Reader {
		if l.past != nil {
			return l.past
		}
		return l.Client
	}))
}

// errKilled is the panic of a process that is killed.
var errKilled = errors.New("killed")

func (l *life) fault(moment harness.Moment, request harness.Request) error {
	if !request.IsWrite() || l.writes < 0 || moment != l.moment {
		return nil
	}
	l.writes--
	switch {
	case l.writes >= 0:
		return nil
	case l.kills:
		panic(errKilled)
	}
	return errors.New("connection reset")
}

// happen does some of the things that happen outside of the process.
func (l *life) happen(isAfter bool) {
	l.Helper()
	switch {
	case l.chance(15):
		l.Pass(time.Duration(l.IntN(600)) * time.Second)
	case l.chance(15):
		back := l.Clock.Now().Add(-time.Duration(l.IntN(120)) * time.Second)
		if back.After(l.earliest) {
			l.Clock.SetTime(back)
		}
	default:
		l.Pass(time.Duration(l.IntN(60_000)) * time.Millisecond)
	}
	if l.Clock.Now().After(l.latest) {
		l.latest = l.Clock.Now()
	}
	for _, job := range l.jobs() {
		if runOf(&job).phase == active && job.DeletionTimestamp == nil && l.chance(3) {
			l.finishJob(&job, []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed}[l.IntN(2)])
		}
	}
	l.collectGarbage()
	if l.chance(2) {
		l.deleteRecordedJobs()
	}
	if isAfter && l.chance(3) {
		at := time.Duration(len(l.ran)-100) * time.Minute
		l.ran = append(l.ran, at)
		l.endRuns("first", at)
	}
	switch {
	case l.chance(4):
		l.past = nil
	case l.chance(8):
		l.past = l.snapshot()
	case l.chance(4):
		l.seen = l.snapshot()
	}
}

// snapshot returns a cache that keeps what there is now.
func (l *life) snapshot() client.Reader {
	l.Helper()
	return harness.Frozen(l.T, l.Client, l.Namespace, Indexes, &batchv1.JobList{}, &stablev1.CronTabList{})
}

// step reconciles, perhaps with a fault at a write. The next process after a kill may have an old cache.
func (l *life) step() {
	l.Helper()
	l.writes = -1
	if l.chance(2) {
		l.writes, l.kills, l.moment = l.IntN(3), l.chance(2), []harness.Moment{harness.Before, harness.After}[l.IntN(2)]
	}
	defer func() {
		switch killed := recover(); {
		case killed == nil:
		case killed == any(errKilled):
			if l.past = nil; l.chance(2) {
				l.past = l.seen
			}
			l.newProcess()
		default:
			panic(killed)
		}
	}()
	for range 1 + l.IntN(3) {
		l.observeJobs(l.Cached())
		cronTab := &stablev1.CronTab{}
		if l.Cached().Get(l.Context(), l.Key, cronTab) != nil {
			return
		}
		result, _ := l.Reconcile(l.Context(), cronTab) // it is tried again
		l.Pass(min(result.RequeueAfter, time.Second))
	}
}

// end lets everything happen that is still to happen, without faults.
func (l *life) end() {
	l.Helper()
	l.past, l.writes = nil, -1
	if l.Clock.Now().Before(l.latest) {
		l.Clock.SetTime(l.latest)
	}
	l.Restart()
	l.reconcileUntilStable()
	l.Pass(handoverPeriod)
	for range 200 {
		l.reconcileUntilStable()
		isIdle := true
		for _, job := range l.jobs() {
			if runOf(&job).phase == active && job.DeletionTimestamp == nil {
				l.finishJob(&job, batchv1.JobComplete)
				isIdle = false
			}
		}
		l.collectGarbage()
		if isIdle {
			l.Pass(5 * time.Second) // the pause of the last cleanup
			l.reconcileUntilStable()
			return
		}
	}
	l.Fatal("runs do not end")
}

// countJobs counts the Jobs of the CronTab in a phase.
func (l *life) countJobs(phase runPhase) (n int) {
	for _, job := range l.jobs() {
		if r := runOf(&job); r.phase == phase && metav1.IsControlledBy(&job, l.Object()) {
			n++
		}
	}
	return n
}

// everyMinute wants the minutes from the creation on.
func (l *life) everyMinute() map[time.Duration]int {
	want := map[time.Duration]int{}
	first := slices.Min(slices.Collect(maps.Keys(l.runs.created)))
	for at := first; at <= l.Clock.Now().Sub(l.since); at += time.Minute {
		want[at] = 1
	}
	return want
}

// backfilled wants the times of the backfill.
func (l *life) backfilled() map[time.Duration]int {
	want := map[time.Duration]int{}
	from := l.Object().Spec.Backfill.From.Sub(l.since)
	for i := range lifeBackfill {
		want[from+time.Duration(i)*time.Minute] = 1
	}
	return want
}

// followed wants the times of the other CronTab.
func (l *life) followed() map[time.Duration]int {
	want := map[time.Duration]int{}
	for _, at := range l.ran {
		want[at] = 1
	}
	return want
}
