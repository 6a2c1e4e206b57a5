package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/internal/testing/env"
)

func TestMain(m *testing.M) { env.Main(m) }

// TestQuick runs everything but the peer, with few objects. What it measures of times and memory means nothing here;
// what it counts must be right.
func TestQuick(t *testing.T) {
	o := quick()
	o.JSON = filepath.Join(t.TempDir(), "results.json")
	var stdout, progress strings.Builder
	_, err := run(t.Context(), o, &stdout, &progress)
	t.Logf("%s%s", progress.String(), stdout.String())
	if err != nil {
		t.Fatal(err)
	}

	data, err := os.ReadFile(o.JSON)
	if err != nil {
		t.Fatal(err)
	}
	var r results
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
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
	for _, tc := range []struct {
		name string
		args []string
		want func(*options)
	}{
		{"nothing gives the defaults", nil, func(o *options) { *o = defaults() }},
		{"quick gives less of everything", []string{"--quick"}, func(o *options) { *o = quick() }},
		{"what is asked for counts beside quick", []string{"--foos=7", "--quick", "--full", "--strict"}, func(o *options) {
			*o = quick()
			o.Foos, o.Full, o.Strict = 7, true, true
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parse(tc.args)
			if err != nil {
				t.Fatal(err)
			}
			var want options
			tc.want(&want)
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(options{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for _, args := range [][]string{{"--foos=0"}, {"--rounds=0"}, {"extra"}, {"--nonsense"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("parse(%v) gave no error", args)
		}
	}
}
