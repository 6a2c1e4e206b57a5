//go:build soak

package crontab

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/testing/env"
)

func TestMain(m *testing.M) { env.Main(m) }

// soakFor returns the number of repetitions of a soak test.
func soakFor(full, short int) int {
	if os.Getenv("KEELSON_SOAK") == "short" {
		return short
	}
	return full
}

// seedOf returns a random seed and logs it.
func seedOf(t *testing.T) uint64 {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return seed
}

// pause waits for a random time up to most.
func pause(random *rand.Rand, most time.Duration) {
	time.Sleep(time.Duration(random.Int64N(int64(most)))) //nolint:forbidigo // a random delay is the point
}

// TestSoakKills kills the manager repeatedly while CronTabs run, restarts the API sometimes, and
// fails writes of status and of some Jobs.
func TestSoakKills(t *testing.T) {
	seed := seedOf(t)
	random := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t, seed)
	w.createCronTabs(t)
	w.createChains(t)
	m := w.startManager(t)
	kills := soakFor(220, 20)
	for i := range kills {
		if random.IntN(4) == 0 {
			pause(random, 800*time.Millisecond) // it may be starting
		} else {
			m.awaitReady(t)
			pause(random, 1200*time.Millisecond)
		}
		m.kill(t)
		m = w.startManager(t)
		switch {
		case i%25 == 12:
			w.restartAPI(t)
			m = w.revive(t, m)
		case i%10 == 9:
			w.calm(t, m)
		}
		if t.Failed() {
			return
		}
	}
	w.finish(t, m)
	t.Logf("%d kills", kills)
}

// TestSoakLeaders runs two managers with leader election, and kills or suspends the leader.
func TestSoakLeaders(t *testing.T) {
	seed := seedOf(t)
	random := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t, seed)
	w.createCronTabs(t)
	w.createChains(t)
	w.elect = true
	both := []*manager{w.startManager(t), w.startManager(t)}
	kills, stops := soakFor(22, 3), soakFor(10, 2)
	faults := append(slices.Repeat([]string{"kill"}, kills), slices.Repeat([]string{"stop"}, stops)...)
	random.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	for i, what := range faults {
		leader := w.awaitLeader(t, both)
		pause(random, 2*time.Second)
		if what == "kill" {
			both[leader].kill(t)
		} else {
			w.stopPastLease(t, random, both, leader)
		}
		both[leader] = w.startManager(t)
		if i%6 == 5 {
			w.calm(t, both[w.awaitLeader(t, both)])
		}
		if t.Failed() {
			return
		}
	}
	// The remaining manager has no lease, which it could lose on a busy machine.
	both[0].kill(t)
	both[1].kill(t)
	w.elect = false
	w.finish(t, w.startManager(t))
	t.Logf("%d leaders killed, %d stopped past their lease", kills, stops)
}

// stopPastLease suspends a leader until some time after the other one has taken over, and resumes
// it, possibly with writes in progress. At the end it is killed, unless it has exited.
func (w *world) stopPastLease(t *testing.T, random *rand.Rand, both []*manager, leader int) {
	t.Helper()
	both[leader].Signal(t, syscall.SIGSTOP)
	began := time.Now()
	w.awaitLease(t, both, 1-leader)
	pause(random, 4*time.Second)
	w.out(began, time.Now().Add(settle))
	both[leader].Signal(t, syscall.SIGCONT)
	pause(random, 2*time.Second)
	both[leader].kill(t)
}

// finish ends the faults, suspends all CronTabs, and checks everything.
func (w *world) finish(t *testing.T, m *manager) {
	t.Helper()
	w.proxy.quieten()
	defer m.explain(t)
	w.calm(t, m)
	w.awaitChains(t)
	w.suspend(t, w.awaitCaughtUp(t))
	w.awaitRest(t)
	w.awaitFollowed(t)
	m.live.To = time.Now()
	w.judge(t)
	w.deleteAll(t)
	m.kill(t)
}

// judge verifies the record against the policies.
func (w *world) judge(t *testing.T) {
	t.Helper()
	runs, err := w.record.runs()
	if err != nil {
		t.Error(err)
	}
	if len(w.record.lost) > 0 {
		t.Errorf("%d Jobs were deleted before they had finished, the first is %s", len(w.record.lost), w.record.lost[0])
	}
	w.judgeChains(t, runs)
	history := w.history()
	sums := map[string]Verdict{}
	problems := 0
	for _, object := range w.objects {
		v := object.Judge(runs[object.Name], w.excusing(object, history))
		delete(runs, object.Name)
		for _, problem := range v.Problems {
			if problems++; problems <= 20 {
				t.Errorf("%s: %s", object.kind(), problem)
			}
		}
		sum := sums[object.kind()]
		sums[object.kind()] = Verdict{Times: sum.Times + v.Times, Missed: sum.Missed + v.Missed, Bound: sum.Bound + v.Bound}
	}
	if problems > 20 {
		t.Errorf("and %d more problems", problems-20)
	}
	for name := range runs {
		t.Errorf("Jobs of an unknown CronTab %s", name)
	}
	for kind, sum := range sums {
		t.Logf("%s: %d times, %d without a Job, %d must have one under any policy", kind, sum.Times, sum.Missed, sum.Bound)
		if sum.Bound*20 < sum.Times {
			t.Errorf("%s: only %d of %d times must have a Job, too few for a conclusion", kind, sum.Bound, sum.Times)
		}
	}
	t.Log(w.proxy.summary())
	t.Log(w.unrests())
}

// kind groups objects in the summary.
func (o Object) kind() string {
	if o.Policy == All {
		return fmt.Sprintf("All, at most %s", cmp.Or(map[bool]string{o.Most == 0: "100"}[true], fmt.Sprint(o.Most)))
	}
	return string(o.Policy)
}
