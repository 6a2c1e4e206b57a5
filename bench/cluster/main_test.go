package main

import (
	"os"
	"testing"

	"github.com/keelson-dev/keelson/bench/internal/commandtest"
)

// TestLongQuick runs everything but the peer, with one cluster. What it measures of times and memory means nothing here; what
// it counts must be right.
func TestLongQuick(t *testing.T) {
	o, r := commandtest.Quick(t, benchmark, "--dir="+t.TempDir())
	for _, contestant := range []string{keelson, script} {
		of := r.of(contestant, 1)
		if len(of) != 1 || last(of[0].Ready) <= 0 {
			t.Errorf("samples of %s: %+v", contestant, of)
		}
	}
	if ours := r.of(keelson, 1); len(ours) != 1 || last(ours[0].Gone) <= 0 {
		t.Errorf("samples of deletions: %+v", ours)
	}
	if len(r.Memory) != 1 || len(r.Memory[0].Components) != componentCount || r.Memory[0].Most <= 0 {
		t.Errorf("memory: %+v", r.Memory)
	}
	if len(r.Restarts) != 2 {
		t.Errorf("restarts: %+v", r.Restarts)
	}
	for _, restart := range r.Restarts {
		if len(restart.NotReady) > 0 || restart.Replaced > 0 {
			t.Errorf("after the restart: %+v", restart)
		}
	}
	if left, err := os.ReadDir(o.dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestParse(t *testing.T) {
	few := quick()
	few.Sizes, few.Peer, few.Strict = []int{2, 8}, true, true
	commandtest.Parse(t, parse, map[string]options{
		"": defaults(), "--quick": quick(), "--sizes=8,2,2,0 --quick --peer --strict": few,
	}, "--sizes=-1", "--sizes=1000", "--rounds=0", "--restart=99", "extra", "--nonsense")
}
