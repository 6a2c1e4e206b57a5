package main

import (
	"io"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/bench/internal/harness"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

func TestMain(m *testing.M) { env.Main(m) }

// TestSmokeQuick runs everything but CronJobs, with few objects. Its times and memory mean nothing; its counts must be right.
func TestSmokeQuick(t *testing.T) {
	r := harness.Quick(t, measure)
	for _, contestant := range []string{floor, keelson} {
		lags := r.Samples.Of(contestant, 50).Pool("lag")
		if len(lags) != 50 || harness.First(lags) < 0 {
			t.Errorf("%s: %d Jobs, want 50; the first after %v s", contestant, len(lags), harness.First(lags))
		}
	}
	for _, target := range r.Targets {
		// On a very busy machine the controller may write a status twice.
		if strings.Contains(target.Name, "writes") && (target.Value < writesLimit || target.Value > writesLimit+1) {
			t.Errorf("%s: %v, want %v", target.Name, target.Value, writesLimit)
		}
		if strings.Contains(target.Name, "requests") && target.Value != 0 {
			t.Errorf("%s: %v, want 0", target.Name, target.Value)
		}
	}
}

func TestReport(t *testing.T) {
	b := &bench{Run: harness.NewRun("test", io.Discard), sizes: &[]int{500, 2000}}
	add := func(contestant string, round, n int, first, half, last float64) {
		s := b.NewSample(contestant, round, n)
		s.Set("lag", first, half, last)
		s.Requests = harness.Requests{"POST jobs": float64(n), "PUT crontabs/status": float64(n), "GET jobs": 1}
	}
	add(floor, 0, 2000, 0.002, 0.5, 1)
	add(keelson, 0, 2000, 0.003, 0.6, 1.1)
	add(cronJob5, 0, 2000, 0.1, 2, 4.4)
	add(floor, 1, 2000, 0.002, 0.5, 1)
	add(keelson, 1, 2000, 0.005, 0.6, 1.3)
	add(cronJob50, 1, 2000, 0.1, 2, 2.6)
	add(keelson, 0, 500, 0.003, 0.1, 0.2)
	add(cronJobShipped, 0, 500, 0.1, 6, 9)
	b.report()
	harness.CheckTargets(t, b.Run, map[string]string{
		"2000 due: last Job, in times of the floor":                      "1.2× MISS",
		"500 due: first Job":                                             "3 ms PASS",
		"2000 due: first Job":                                            "4 ms PASS",
		"2000 due: last Job, times as fast as CronJob, 5 workers":        "4× PASS",
		"2000 due: last Job, times as fast as CronJob, 50 workers":       "2× MISS",
		"500 due: half of the Jobs, times as fast as CronJob as shipped": "60× PASS",
		"writes a run, events included":                                  "2 PASS",
	})
}
