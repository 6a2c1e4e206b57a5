package main

import (
	"os"
	"testing"

	"github.com/keelson-dev/keelson/bench/internal/commandtest"
)

// TestLongQuick has every contestant start once. What it measures of times and memory means nothing here.
func TestLongQuick(t *testing.T) {
	o, r := commandtest.Quick(t, benchmark, "--dir="+t.TempDir())
	for _, contestant := range contestants {
		if of := r.Starts[contestant]; len(of) != 1 || of[0].Ready <= 0 || (of[0].Settled > 0) != (contestant == keelsonAll) {
			t.Errorf("starts of %s: %+v", contestant, of)
		}
	}
	if len(r.Components) != 5 {
		t.Errorf("components: %+v", r.Components)
	}
	for _, c := range r.Components {
		if c.Memory.PSS <= 0 || c.Shim.PSS <= 0 {
			t.Errorf("the memory of %s is %+v, that of its shim %+v", c.Name, c.Memory, c.Shim)
		}
	}
	if left, err := os.ReadDir(o.dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestParse(t *testing.T) {
	more, few := defaults(), quick()
	more.Rounds = 15
	few.dir, few.Strict = "/data", true
	commandtest.Parse(t, parse, map[string]options{
		"": defaults(), "--quick": quick(), "--rounds=15": more, "--dir=/data --quick --strict": few,
	}, "--rounds=0", "--idle=0s", "extra", "--nonsense")
}
