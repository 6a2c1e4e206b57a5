package main

import (
	"io"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/bench/internal/harness"
	"github.com/keelson-dev/keelson/bench/internal/realnode"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

func TestMain(m *testing.M) { env.Main(m) }

// TestSmokeQuick runs everything but CronJobs, with few containers. Its times and memory mean nothing; its counts must be
// right.
func TestSmokeQuick(t *testing.T) {
	env.RealNode(t)
	r := harness.Quick(t, measure)
	for _, contestant := range []string{floor, keelson} {
		of := r.Samples.Of(contestant, 2)
		running := of.Pool("running")
		if len(running) != 4 || harness.First(running) <= 0 {
			t.Errorf("%s: %d containers, want 2 in each of 2 turns; the first after %v s", contestant, len(running), harness.First(running))
		}
		for _, stage := range []string{job, pod, bound} {
			if seen := of.Pool(stage); contestant == keelson && (len(seen) != 4 || harness.First(seen) > harness.Last(running)) {
				t.Errorf("%s: seen after %v s", stage, seen)
			}
		}
	}
	empty, full := r.Samples.Of(emptyNode, 1), r.Samples.Of(fullNode, 1)
	for _, part := range realnode.Always {
		if empty.Median(part, harness.Last) <= 0 || full.Median(part, harness.Last) <= 0 {
			t.Errorf("the memory of %s is %v, with Pods %v", part, empty.Pool(part), full.Pool(part))
		}
	}
	for _, part := range realnode.PerPod {
		if len(empty.Pool(part)) > 0 || full.Median(part, harness.Last) <= 0 {
			t.Errorf("the memory of %s is %v, with Pods %v", part, empty.Pool(part), full.Pool(part))
		}
	}
	if starts := r.Samples.Of(starting, 1).Pool("ready"); len(starts) != 1 || starts[0] <= 0 {
		t.Errorf("the node was started in %v s", starts)
	}
	if starts := r.Samples.Of(startingThree, 1).Pool("ready"); len(starts) != 3 || starts[0] <= 0 {
		t.Errorf("three nodes were started in %v s", starts)
	}
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

func TestReport(t *testing.T) {
	b := &bench{Run: harness.NewRun("test", io.Discard), sizes: &[]int{1, 10}, pods: 2}
	burst := func(contestant string, round int, created, running float64) {
		s := b.NewSample(contestant, round, 1)
		s.Set("running", running)
		s.Set(job, created)
	}
	burst(floor, 0, 0, 0.1)
	burst(keelson, 0, 0.004, 0.8)
	burst(keelson, 0, 0.006, 1)
	burst(cronJob, 0, 0.1, 1)
	burst(floor, 1, 0, 0.12)
	burst(keelson, 1, 0.005, 1.2)
	burst(cronJob, 1, 0.1, 1)
	for round, took := range []float64{1, 7, 6} {
		b.NewSample(starting, round, 1).Set("ready", took)
		b.NewSample(startingThree, round, 1).Set("ready", took, 1.2*took)
	}
	empty, full := b.NewSample(emptyNode, 0, 2), b.NewSample(fullNode, 0, 2)
	empty.Set("containerd", 80e6)
	empty.Set("kubelet", 90e6)
	full.Set("containerd-shim-runc-v2", 20e6)
	full.Set("pause", 2e6)
	b.report()
	harness.CheckTargets(t, b.Run, map[string]string{
		"1 due: Job of a CronTab":                                    "5 ms PASS",
		"1 due: its container runs, above ctr run":                   "900 ms PASS",
		"1 due: container of a CronTab runs, in times of CronJob":    "1.05× MISS", // 0.9 in one round, 1.2 in the other
		"start of the node, until it is ready":                       "6 s MISS",
		"start of three nodes, until all are ready, in times of one": "1.2× PASS",
		"memory of the node without Pods":                            "170 MB PASS",
		"memory of a Pod besides its containers":                     "11 MB PASS",
	})
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
