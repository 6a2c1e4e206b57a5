package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/bench/internal/commandtest"
	"github.com/keelson-dev/keelson/bench/internal/measure"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

func TestMain(m *testing.M) { env.Main(m) }

// TestLongQuick runs everything but CronJobs, with few objects. What it measures of times and memory means nothing here;
// what it counts must be right.
func TestLongQuick(t *testing.T) {
	o, r := commandtest.Quick(t, benchmark, "--plot="+filepath.Join(t.TempDir(), "plot.svg"))
	runs, own := map[string]int{}, 0
	for _, one := range r.Bursts {
		runs[one.Contestant] += one.Lag.Count
		if one.Lag.Min < 0 {
			t.Errorf("%s: a Job was there %s before its time", one.Contestant, -one.Lag.Min)
		}
		if one.Own != nil {
			own += one.Own.Count
		}
	}
	all := o.Sizes[0]
	if diff := cmp.Diff(map[string]int{floor: all, keelson: all}, runs); diff != "" {
		t.Errorf("Jobs in bursts (-want +got):\n%s", diff)
	}
	if own != all {
		t.Errorf("the manager's own histogram has %d runs, want %d", own, all)
	}
	for _, target := range r.Targets {
		// A machine that is very busy can make the controller write a status twice.
		if strings.Contains(target.Name, "writes") && (target.Value < writesLimit || target.Value > writesLimit+1) {
			t.Errorf("%s: %v, want %v", target.Name, target.Value, writesLimit)
		}
		if strings.Contains(target.Name, "requests") && target.Value != requestLimit {
			t.Errorf("%s: %v, want %v", target.Name, target.Value, requestLimit)
		}
	}
	picture, err := os.ReadFile(o.plotFile)
	if err != nil || !strings.Contains(string(picture), "the last Job") {
		t.Errorf("the plot is %q, %v", picture, err)
	}
}

func TestParse(t *testing.T) {
	few, none := quick(), defaults()
	few.Sizes, few.Only, few.Strict = []int{3, 7}, []string{floor}, true
	none.Sizes = nil
	commandtest.Parse(t, parse, map[string]options{
		"": defaults(), "--quick": quick(), "--sizes=7,3,7 --only=floor --quick --strict": few, "--sizes=0": none,
	}, "--sizes=many", "--sizes=-1", "--rounds=0", "--only=nobody", "extra", "--nonsense")
}

// burstOf is a burst that took so many milliseconds to the first Job, to half of them, and to the last.
func burstOf(contestant string, round, n int, first, half, last time.Duration) *burst {
	return &burst{Contestant: contestant, Round: round, Objects: n, Lag: measure.Distribution{
		Count: n, Min: first * time.Millisecond, P50: half * time.Millisecond, P99: last * time.Millisecond, Max: last * time.Millisecond,
	}, Requests: served{"POST jobs": float64(n), "PUT crontabs/status": float64(n), "GET jobs": 1}}
}

func TestTargets(t *testing.T) {
	r := &results{Options: options{Sizes: []int{500, 2000}}, Bursts: []*burst{
		burstOf(floor, 0, 2000, 2, 500, 1000), burstOf(keelson, 0, 2000, 3, 600, 1100), burstOf(cronJob5, 0, 2000, 100, 2000, 4400),
		burstOf(floor, 1, 2000, 2, 500, 1000), burstOf(keelson, 1, 2000, 5, 600, 1300), burstOf(cronJob50, 1, 2000, 100, 2000, 2600),
		burstOf(keelson, 0, 500, 3, 100, 200), burstOf(cronJobShipped, 0, 500, 100, 6000, 9000),
	}}
	got := map[string]float64{}
	met := map[string]bool{}
	for _, target := range r.burstTargets() {
		got[target.Name], met[target.Name] = target.Value, target.Met()
	}
	want := map[string]float64{
		"2000 due: last Job, in times of the floor":                      1.2,
		"500 due: first Job":                                             3,
		"2000 due: first Job":                                            4,
		"2000 due: last Job, times as fast as CronJob, 5 workers":        4,
		"2000 due: last Job, times as fast as CronJob, 50 workers":       2,
		"500 due: half of the Jobs, times as fast as CronJob as shipped": 60,
		"writes a run, events included":                                  2,
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, want := range map[string]bool{
		"2000 due: last Job, in times of the floor":                      false,
		"2000 due: last Job, times as fast as CronJob, 5 workers":        true,
		"2000 due: last Job, times as fast as CronJob, 50 workers":       false,
		"500 due: half of the Jobs, times as fast as CronJob as shipped": true,
		"writes a run, events included":                                  true,
	} {
		if met[name] != want {
			t.Errorf("%s: met is %v, want %v", name, met[name], want)
		}
	}
}

func TestServed(t *testing.T) {
	s := served{"POST jobs": 10, "PUT crontabs/status": 10, "GET jobs": 2, "WATCH jobs": 1, "LIST crontabs": 1}
	if s.writes() != 20 || s.total() != 23 {
		t.Errorf("%v writes and %v in all, want 20 and 23: the end of a watch is no request", s.writes(), s.total())
	}
	const want = "GET jobs 0.20, LIST crontabs 0.10, POST jobs 1.00, PUT crontabs/status 1.00"
	if got := s.each(10); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
