package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/bench/internal/commandtest"
	"github.com/keelson-dev/keelson/bench/internal/measure"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

func TestMain(m *testing.M) { env.Main(m) }

// TestLongQuick runs everything but CronJobs, with few containers. What it measures of times and memory means nothing here;
// what it counts must be right.
func TestLongQuick(t *testing.T) {
	env.RealNode(t)
	_, r := commandtest.Quick(t, benchmark)
	counts := map[string]int{}
	for _, one := range r.Bursts {
		counts[one.Contestant] += one.Running.Count
		if one.Running.Min <= 0 {
			t.Errorf("%s: a container ran %s before its time", one.Contestant, -one.Running.Min)
		}
		if one.Contestant == keelson && (one.Job.Count != 2 || one.Pod.Count != 2 || one.Bound.Count != 2 || one.Bound.Min > one.Running.Max) {
			t.Errorf("Jobs, Pods, and those with a node: %+v, %+v, %+v", one.Job, one.Pod, one.Bound)
		}
	}
	if diff := cmp.Diff(map[string]int{floor: 2, keelson: 2}, counts); diff != "" {
		t.Errorf("containers in bursts (-want +got):\n%s", diff)
	}
	for part, memory := range r.Full {
		if memory.PSS <= 0 || memory.PSS > memory.RSS {
			t.Errorf("the memory of %s is %+v", part, memory)
		}
	}
	if len(r.Empty) != len(always) || len(r.Full) != len(parts) || len(r.Starts) != 1 || r.Starts[0] <= 0 {
		t.Errorf("the node was started in %v and has the parts %v, with Pods %v", r.Starts, r.Empty, r.Full)
	}
}

func TestParse(t *testing.T) {
	few, none := quick(), defaults()
	few.Sizes, few.CronJobs, few.Strict = []int{3, 7}, true, true
	none.Sizes = nil
	commandtest.Parse(t, parse, map[string]options{
		"": defaults(), "--quick": quick(), "--sizes=7,3,7 --cronjobs --quick --strict": few, "--sizes=0": none,
	}, "--sizes=many", "--sizes=101", "--rounds=0", "--repeats=0", "--starts=0", "--pods=0", "--pods=101", "extra")
}

func TestNextDue(t *testing.T) {
	for _, tc := range []struct {
		name, contestant, now, want string
	}{
		{"ctr run at any second", floor, "12:00:10.900", "12:00:14"},
		{"a CronTab at any second", keelson, "12:00:10.900", "12:00:14"},
		{"never with less of a rest", keelson, "12:00:11.000", "12:00:15"},
		{"a CronJob at a full minute", cronJob, "12:00:10.900", "12:01:00"},
		{"one that is not too close", cronJob, "12:00:57.000", "12:02:00"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now, err := time.Parse(time.TimeOnly, tc.now)
			if err != nil {
				t.Fatal(err)
			}
			if got := nextDue(tc.contestant, now, 3*time.Second).Format("15:04:05.999"); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// burstOf is a burst of one container, whose Job and program were there after so many milliseconds.
func burstOf(contestant string, round int, job, runs time.Duration) *burst {
	lags := []time.Duration{runs * time.Millisecond}
	b := &burst{Contestant: contestant, Round: round, Due: 1, Lags: lags, Running: measure.Distribute(lags)}
	if contestant != floor {
		seen := measure.Distribute([]time.Duration{job * time.Millisecond})
		b.Job, b.Pod, b.Bound = &seen, &seen, &seen
	}
	return b
}

func TestTargets(t *testing.T) {
	r := &results{
		Options: options{Sizes: []int{1, 10}, Rounds: 2, Pods: 2},
		Bursts: []*burst{
			burstOf(floor, 0, 0, 100), burstOf(keelson, 0, 4, 800), burstOf(keelson, 0, 6, 1000), burstOf(cronJob, 0, 100, 1000),
			burstOf(floor, 1, 0, 120), burstOf(keelson, 1, 5, 1200), burstOf(cronJob, 1, 100, 1000),
		},
		Starts: []time.Duration{time.Second, 7 * time.Second, 6 * time.Second},
		Empty:  footprint{"containerd": {PSS: 80e6}, "kubelet": {PSS: 90e6}},
		Full:   footprint{"containerd": {PSS: 90e6}, "kubelet": {PSS: 100e6}, "containerd-shim-runc-v2": {PSS: 20e6}, "pause": {PSS: 2e6}},
	}
	type verdict struct {
		Value float64
		Met   bool
	}
	got := map[string]verdict{}
	for _, target := range slices.Concat(r.burstTargets(), r.nodeTargets()) {
		got[target.Name] = verdict{target.Value, target.Met()}
	}
	want := map[string]verdict{
		"1 due: Job of a CronTab":                  {5, true},
		"1 due: its container runs, above ctr run": {900, true},
		// 0.9 in the one round, 1.2 in the other.
		"1 due: container of a CronTab runs, in times of CronJob": {1.05, false},
		"start of the node, until it is ready":                    {6, false},
		"memory of the node without Pods":                         {170, true},
		"memory of a Pod besides its containers":                  {11, true},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var text strings.Builder
	if missed := r.Report(&text); missed != 2 || !strings.Contains(text.String(), "| CronTab") {
		t.Errorf("%d targets are missed:\n%s", missed, text.String())
	}
}

func TestSnapshotterOf(t *testing.T) {
	got, err := snapshotterOf("version = 3\n[plugins.\"io.containerd.cri.v1.images\"]\n  snapshotter = \"overlayfs\"\n")
	if got != "overlayfs" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := snapshotterOf("version = 3\n"); err == nil {
		t.Error("a configuration without one has one")
	}
}
