package measure

import (
	"os"
	"testing"
	"time"
)

// The process that is measured is this one.
func TestProcess(t *testing.T) {
	before, err := ProcessorTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	// Work until the count goes up; a count that never does would keep this from ending.
	for deadline := time.Now().Add(10 * time.Second); ; {
		after, err := ProcessorTime(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if after > before {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("10 s of work count as no processor time")
		}
	}
	memory, err := MemoryOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if memory.PSS <= 0 || memory.PSS > memory.RSS || memory.File <= 0 || memory.File > memory.RSS || memory.Peak < memory.RSS/2 {
		t.Errorf("memory %+v: want 0 < PSS, File <= RSS, and a peak of that order", memory)
	}
}
