package main

import (
	"testing"

	"github.com/keelson-dev/keelson/bench/internal/harness"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

func TestMain(m *testing.M) { env.Main(m) }

// TestSmokeQuick runs everything but the peer, with few objects. Its times and memory mean nothing; its counts must be
// right.
func TestSmokeQuick(t *testing.T) {
	r := harness.Quick(t, measure)
	for _, contestant := range []string{floor, keelson} {
		if seen := len(r.Samples.Of(contestant, 50).Pool("seen")); seen != 50 {
			t.Errorf("%s: %d Deployments, want 50", contestant, seen)
		}
	}
	for _, target := range r.Targets {
		// On a very busy machine the controller may write a status twice.
		if target.Name == writes && (target.Value < writesLimit || target.Value > writesLimit+1) {
			t.Errorf("%s: %v, want %v", target.Name, target.Value, writesLimit)
		}
	}
	if len(r.Targets) != 2 {
		t.Errorf("%d targets, want 2", len(r.Targets))
	}
}
