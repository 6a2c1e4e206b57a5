package main

import (
	"slices"
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
		seen := r.Samples.Of(contestant, 50).Pool("seen")
		if len(seen) != 50 || harness.First(seen) < 0 {
			t.Errorf("%s: %d Jobs, want 50; the first after %v s", contestant, len(seen), harness.First(seen))
		}
	}
	for _, target := range r.Targets {
		// On a very busy machine the controller may write a status twice.
		if strings.HasSuffix(target.Name, writes) && (target.Value < writesLimit || target.Value > writesLimit+1) {
			t.Errorf("%s: %v, want %v", target.Name, target.Value, writesLimit)
		}
	}
	if len(r.Targets) < 4 { // the processor may not be used at all
		t.Errorf("%d targets, want those of a burst, and ready and heap of a fleet", len(r.Targets))
	}
	if n := r.Samples.Of(keelson, 50).Pool("requests"); !slices.Equal(n, []float64{0}) {
		t.Errorf("requests while nothing is due: %v", n)
	}
}
