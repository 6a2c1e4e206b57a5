package main

import (
	"os"
	"testing"

	"github.com/keelson-dev/keelson/bench/internal/harness"
)

// TestSmokeQuick has every contestant start once. Its times and memory mean nothing.
func TestSmokeQuick(t *testing.T) {
	dir := t.TempDir()
	r := harness.Quick(t, measure, "--dir="+dir)
	for _, contestant := range contestants {
		of := r.Samples.Of(contestant, 1)
		if ready := of.Pool("ready"); len(ready) != 1 || ready[0] <= 0 || len(of.Pool("settled")) > 0 != (contestant == keelsonAll) {
			t.Errorf("%s: ready %v, settled %v", contestant, ready, of.Pool("settled"))
		}
	}
	for _, name := range components {
		if of := r.Samples.Of(name, 0); of.Median("PSS", harness.Last) <= 0 || of.Median("shim", harness.Last) <= 0 {
			t.Errorf("the memory of %s is %v, that of its shim %v", name, of.Pool("PSS"), of.Pool("shim"))
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
