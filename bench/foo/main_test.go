package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/bench/internal/commandtest"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

func TestMain(m *testing.M) { env.Main(m) }

// TestLongQuick runs everything but the peer, with few objects. What it measures of times and memory means nothing here;
// what it counts must be right.
func TestLongQuick(t *testing.T) {
	o, r := commandtest.Quick(t, benchmark)
	bursts := map[string]int{}
	for _, one := range r.Bursts {
		bursts[one.Contestant] += one.FromSent.Count
	}
	want := map[string]int{floorDeployments: o.Foos, floorBoth: o.Foos, keelson: o.Foos}
	if diff := cmp.Diff(want, bursts); diff != "" {
		t.Errorf("objects in bursts (-want +got):\n%s", diff)
	}
	counted := map[string]float64{}
	for _, target := range r.Targets {
		if target.Unit == "" {
			counted[target.Name] = target.Value
		}
	}
	if len(counted) != 2 {
		t.Errorf("counted %v, want the writes for a Foo and the requests of idle ones", counted)
	}
	for name, value := range counted {
		// A machine that is very busy can make the controller write a status twice.
		if strings.Contains(name, "writes") && (value < writesLimit || value > writesLimit+1) {
			t.Errorf("%s: %v, want %v", name, value, writesLimit)
		}
		if strings.Contains(name, "idle") && value != idleLimit {
			t.Errorf("%s: %v, want %v", name, value, idleLimit)
		}
	}
	if r.Idle.Repair.Count != o.Repairs || r.Idle.RepairFloor.Count != o.Repairs {
		t.Errorf("%d repairs and %d of the floor, want %d", r.Idle.Repair.Count, r.Idle.RepairFloor.Count, o.Repairs)
	}
}

func TestParse(t *testing.T) {
	few := quick()
	few.Foos, few.Full, few.Strict = 7, true, true
	commandtest.Parse(t, parse, map[string]options{
		"": defaults(), "--quick": quick(), "--foos=7 --quick --full --strict": few,
	}, "--foos=0", "--rounds=0", "extra", "--nonsense")
}
