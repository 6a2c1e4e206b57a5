package crontab

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

// What is left out of the cache changes no decision and no Job.
func TestTheCacheHasAllThatIsRead(t *testing.T) {
	full := newCronTab(request("2026-03-04T11:59:20Z"), withTTL)
	slim := must(slimCronTab(full.DeepCopy())).(*stablev1.CronTab)
	if slim.Spec.JobTemplate != nil {
		t.Error("the template is kept decoded")
	}
	if diff := cmp.Diff(must(templateOf(full)), must(templateOf(slim))); diff != "" {
		t.Errorf("template (-of the API +of the cache):\n%s", diff)
	}
	see := func(c *stablev1.CronTab, slim func(any) (any, error)) plan {
		var jobs []*batchv1.Job
		for _, clock := range []string{"11:55:00", "11:56:00", "11:57:00", "11:58:00", "11:59:00"} {
			job := jobOf(full, at(clock), ended(batchv1.JobComplete))
			jobs = append(jobs, must(slim(job)).(*batchv1.Job))
		}
		return decide(c, see(c, at("11:59:00"), jobs...), noon)
	}
	same := func(object any) (any, error) { return object, nil }
	if diff := cmp.Diff(decisionOf(see(full, same)), decisionOf(see(slim, slimJob))); diff != "" {
		t.Errorf("plan (-of the API +of the cache):\n%s", diff)
	}
	foreign := jobOf(full, noon)
	foreign.OwnerReferences = nil
	if got := must(slimJob(foreign)).(*batchv1.Job); got.Name != foreign.Name || len(got.Annotations) > 0 {
		t.Errorf("of a foreign Job the cache has %s", asJSON(got))
	}
}

// A CronTab that waits takes little memory: in the cache, in the alarm, and what is
// remembered.
func TestACronTabTakesLittleMemory(t *testing.T) {
	const many, limit = 2000, 4 << 10
	clock := clocktesting.NewFakeClock(noon)
	a, known := newAlarm(clock), newMemories()
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
		seen := see(cronTab, at("11:59:00"))
		p := decide(cronTab, seen, at("11:59:30"))
		cronTab.Status = summarize(cronTab, seen, p, done{}, nil)
		// As it comes from the API server.
		raw := must(json.Marshal(cronTab))
		decoded := &stablev1.CronTab{}
		if err := json.Unmarshal(raw, decoded); err != nil {
			t.Fatal(err)
		}
		decoded.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", FieldsV1: &metav1.FieldsV1{}}}
		slim := must(slimCronTab(decoded)).(*stablev1.CronTab)
		known.of(slim).load(progressOf(&slim.Status), nil)
		a.set(client.ObjectKeyFromObject(slim), p.wake)
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
		t.Error("no alarm is set")
	}
}
