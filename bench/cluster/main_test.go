package main

import (
	"os"
	"testing"

	"github.com/keelson-dev/keelson/bench/internal/harness"
)

// TestSmokeQuick runs everything but the peer, with one cluster. Its times and memory mean nothing; its counts must be right.
func TestSmokeQuick(t *testing.T) {
	dir := t.TempDir()
	r := harness.Quick(t, measure, "--dir="+dir)
	for contestant, figures := range map[string][]string{
		keelson: {"ready", "gone", "memory"}, script: {"ready", "memory"},
	} {
		for _, figure := range figures {
			if got := r.Samples.Of(contestant, 1).Pool(figure); len(got) != 1 || got[0] <= 0 {
				t.Errorf("%s: %s is %v", contestant, figure, got)
			}
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
