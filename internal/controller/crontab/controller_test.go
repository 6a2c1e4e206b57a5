package crontab

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/statuscheck"
)

// Stripping the cache changes no decision and no Job.
func TestStrippedCacheChangesNoDecision(t *testing.T) {
	full := newCronTab(withRequest("2026-03-04T11:59:20Z"), withTTL)
	slim := must(stripCronTab(full.DeepCopy())).(*stablev1.CronTab)
	if slim.Spec.JobTemplate != nil {
		t.Error("the cached template is decoded")
	}
	if diff := cmp.Diff(must(jobTemplate(full)), must(jobTemplate(slim))); diff != "" {
		t.Errorf("template (-of the API +of the cache):\n%s", diff)
	}
	see := func(c *stablev1.CronTab, slim func(any) (any, error)) plan {
		var jobs []*batchv1.Job
		for _, clock := range []string{"11:55:00", "11:56:00", "11:57:00", "11:58:00", "11:59:00"} {
			job := jobOf(full, at(clock), finishedWith(batchv1.JobComplete))
			jobs = append(jobs, must(slim(job)).(*batchv1.Job))
		}
		return decide(c, observationOf(c, at("11:59:00"), jobs...), noon)
	}
	same := func(object any) (any, error) { return object, nil }
	if diff := cmp.Diff(decisionOf(see(full, same)), decisionOf(see(slim, stripJob))); diff != "" {
		t.Errorf("plan (-of the API +of the cache):\n%s", diff)
	}
	foreign := jobOf(full, noon)
	foreign.OwnerReferences = nil
	if got := must(stripJob(foreign)).(*batchv1.Job); got.Name != foreign.Name || len(got.Annotations) > 0 {
		t.Errorf("cached foreign Job is %s", asJSON(got))
	}
}

// A schedule is parsed once for each generation, and an invalid one again: its time zone may be there by then.
func TestScheduleIsParsedOnce(t *testing.T) {
	cronTab := newCronTab(func(c *stablev1.CronTab) { c.Generation = 1 })
	st := newStateStore().get(cronTab)
	first, _ := st.scheduleOf(cronTab)
	if again, _ := st.scheduleOf(cronTab); again != first {
		t.Error("the same generation is parsed again")
	}
	cronTab.Generation, cronTab.Spec.Schedule = 2, "0 0 L * *"
	second, _ := st.scheduleOf(cronTab)
	if next, _ := second.Next(noon); second.hash == first.hash || next.Day() != 31 {
		t.Errorf("after a change of the spec the next time is %v", next)
	}
	cronTab.Generation, cronTab.Spec.TimeZone = 3, "Europe/Nowhere"
	if kept, invalid := st.scheduleOf(cronTab); kept != nil || invalid == nil {
		t.Error("an invalid schedule is not reported")
	}
	cronTab.Spec.TimeZone = "Europe/Berlin" // as if the host had it now
	if third, invalid := st.scheduleOf(cronTab); third == nil || invalid != nil {
		t.Errorf("an invalid schedule is not parsed again: %v", invalid)
	}
}

// An idle CronTab needs little memory in the cache, the wakeups and the state.
func TestMemoryPerCronTab(t *testing.T) {
	const many, limit = 2000, 4 << 10
	clock := clocktesting.NewFakeClock(noon)
	a, known := newWakeups(clock), newStateStore()
	var kept []any
	used := func() uint64 {
		runtime.GC()
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	before := used()
	for n := range many {
		cronTab := newCronTab()
		cronTab.Name, cronTab.UID = fmt.Sprintf("tick-%d", n), types.UID(fmt.Sprintf("uid-%d-of-usual-length-36-chars", n))
		seen := observationOf(cronTab, at("11:59:00"))
		p := decide(cronTab, seen, at("11:59:30"))
		cronTab.Status = summarize(cronTab, seen, p, actResult{}, nil)
		// Decode it like the client does.
		raw := must(json.Marshal(cronTab))
		decoded := &stablev1.CronTab{}
		if err := json.Unmarshal(raw, decoded); err != nil {
			t.Fatal(err)
		}
		decoded.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", FieldsV1: &metav1.FieldsV1{}}}
		slim := must(stripCronTab(decoded)).(*stablev1.CronTab)
		known.get(slim).loadProgress(progressFromStatus(&slim.Status), progressFromStatus(&slim.Status), nil)
		if _, invalid := known.get(slim).scheduleOf(slim); invalid != nil {
			t.Fatal(invalid)
		}
		a.set(client.ObjectKeyFromObject(slim), p.wakeAt)
		kept = append(kept, slim)
	}
	after := used()
	runtime.KeepAlive(kept)
	runtime.KeepAlive(a)
	runtime.KeepAlive(known)
	each := (after - before) / many
	t.Logf("%d bytes each", each)
	if each > limit {
		t.Errorf("a CronTab takes %d bytes, more than %d", each, limit)
	}
	if a.at(client.ObjectKey{Namespace: "market", Name: "tick-1"}).Sub(noon) > time.Minute {
		t.Error("no wakeup is set")
	}
}

// runManager runs a manager with this controller for the namespace of f until the test ends.
func (f *fixture) runManager() *harness.Requests {
	f.Helper()
	f.Clock.SetTime(time.Now()) // as that of the manager, which would wait for a later end of a Job
	add := func(mgr ctrl.Manager, options controller.Options) error { return Add(mgr, options, nil) }
	return harness.RunManager(f.T, env.Config(f), f.Client.Scheme(), f.Namespace, add, Cache)
}

// createNamed creates a CronTab without waiting.
func (f *fixture) createNamed(name string, changes ...mutation) error {
	cronTab := newCronTab(changes...)
	cronTab.ObjectMeta = metav1.ObjectMeta{Namespace: f.Namespace, Name: name, Annotations: cronTab.Annotations}
	return f.Client.Create(f.Context(), cronTab)
}

func TestManagerRunsEverySecond(t *testing.T) {
	f := newFixture(t)
	f.runManager()
	// A busy host may be late by more than a second.
	f.Do(f.createNamed("tick", withSchedule("@every 1s"), withMissedRuns(stablev1.AllMissedRuns, 100)))
	harness.Eventually(t, "there are five Jobs", func() bool { return len(f.jobs()) >= 5 })
	f.update(withSuspend)
	harness.Eventually(t, "it is suspended", func() bool { return f.HasReason(stablev1.ReasonSuspended) })
	jobs := f.jobs()
	for i := range jobs {
		if got, want := runOf(&jobs[i]).at, runOf(&jobs[0]).at.Add(time.Duration(i)*time.Second); !got.Equal(want) {
			t.Errorf("run %d has the scheduled time %v, want %v", i, got, want)
		}
		if lag := jobs[i].CreationTimestamp.Sub(runOf(&jobs[i]).at); lag > 30*time.Second { // a second on an idle host
			t.Errorf("run %d was %v late", i, lag)
		}
		f.finishJob(&jobs[i], batchv1.JobComplete)
	}
	harness.Eventually(t, "three of them are kept", func() bool { return len(f.jobs()) == 3 && len(f.Object().Status.Active) == 0 })
	f.update(withRequest("2026-03-04T12:00:00Z"))
	harness.Eventually(t, "one runs on demand", func() bool { return f.Object().Status.LastRunRequestedAt != nil && len(f.Object().Status.Active) == 1 })
	statuscheck.Verify(t, f.Object())
}

func TestLongManagerStartsManyRunsAtOnce(t *testing.T) {
	f := newFixture(t)
	counted := f.runManager()
	counted.Take()
	const many = 500
	cronTabs := func() []client.Object {
		var list stablev1.CronTabList
		f.Do(f.Client.List(t.Context(), &list, client.InNamespace(f.Namespace)))
		var all []client.Object
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
		return all
	}
	// All are due in the same second. Estimate from a few idle CronTabs how long creating all of
	// them takes.
	const few = 50
	begin := time.Now()
	harness.Parallel(t, few, func(n int) error { return f.createNamed(fmt.Sprintf("idle-%d", n), withSchedule("0 0 1 1 *")) })
	due := time.Now().Add(20*time.Second + 3*many/few*time.Since(begin)).UTC()
	text := fmt.Sprintf("%d %d %d %d %d ?", due.Second(), due.Minute(), due.Hour(), due.Day(), due.Month())
	harness.Parallel(t, many, func(n int) error { return f.createNamed(fmt.Sprintf("tick-%d", n), withSchedule(text)) })
	settled := func() bool {
		for _, cronTab := range cronTabs() {
			if len(statuscheck.Problems(cronTab)) > 0 {
				return false
			}
		}
		return true
	}
	harness.Eventually(t, "each has a status", settled)
	if time.Now().After(due) {
		t.Fatal("this machine is too slow for the test: runs became due before all CronTabs were created")
	}
	// On a slow machine, this is longer than the timeout of Eventually.
	select {
	case <-time.After(time.Until(due)):
	case <-t.Context().Done():
	}
	harness.Eventually(t, "there is a Job for each", func() bool { return len(f.jobs()) == many })
	harness.Eventually(t, "each has its run in the status", func() bool {
		for _, cronTab := range cronTabs() {
			if strings.HasPrefix(cronTab.GetName(), "tick") && len(cronTab.(*stablev1.CronTab).Status.Active) != 1 {
				return false
			}
		}
		return true
	})
	// One status update for each new CronTab, and two writes for each run.
	if diff := cmp.Diff(map[string]int{http.MethodPost: many, http.MethodPut: many + few + many}, counted.Take()); diff != "" {
		t.Errorf("requests for %d new CronTabs and %d runs (-want +got):\n%s", many+few, many, diff)
	}
	statuscheck.Verify(t, cronTabs()...)
}
