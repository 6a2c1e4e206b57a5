package crontab

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

// BenchmarkMemory reports the heap of an idle CronTab: in the cache, and in the state of the controller.
func BenchmarkMemory(b *testing.B) {
	const n = 10000
	heap := func() float64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return float64(stats.HeapAlloc)
	}
	template := newCronTab()
	seen := observationOf(template, noon)
	status := summarize(template, seen, decide(template, seen, noon), actResult{}, nil)
	for b.Loop() {
		before := heap()
		cached := make([]*stablev1.CronTab, 0, n)
		for i := range n {
			made := template.DeepCopy()
			made.Name, made.UID, made.ResourceVersion = fmt.Sprintf("backup-%06d", i), types.UID(fmt.Sprintf("3f2b8f5e-0000-4000-8000-%012d", i)), fmt.Sprint(i)
			made.Status = status
			decoded := &stablev1.CronTab{}
			if err := json.Unmarshal(must(json.Marshal(made)), decoded); err != nil {
				b.Fatal(err)
			}
			slim := must(stripCronTab(decoded))
			cached = append(cached, slim.(*stablev1.CronTab))
		}
		inCache := heap()
		states, wakeups := newStateStore(), newWakeups(clocktesting.NewFakeClock(noon))
		for _, c := range cached {
			st := states.get(c)
			st.schedule, _ = st.scheduleOf(c)
			st.loadProgress(progressFromStatus(&c.Status), progressFromStatus(&c.Status), nil)
			wakeups.set(client.ObjectKeyFromObject(c), noon.Add(time.Hour))
		}
		b.ReportMetric((inCache-before)/n, "B/cached")
		b.ReportMetric((heap()-inCache)/n, "B/state")
		runtime.KeepAlive(cached)
		runtime.KeepAlive(states)
		runtime.KeepAlive(wakeups)
	}
}
