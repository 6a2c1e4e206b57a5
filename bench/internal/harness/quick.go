package harness

import (
	"context"
	"strings"
	"testing"
)

// Quick runs a benchmark with --quick and more flags, for its test. It returns the run.
func Quick(t *testing.T, measure func(ctx context.Context, r *Run, args []string) error, flags ...string) *Run {
	t.Helper()
	var report, progress strings.Builder
	r := NewRun("quick", &progress)
	err := measure(t.Context(), r, append([]string{"--quick"}, flags...))
	if err == nil {
		err = r.Finish(&report)
	}
	t.Logf("%s%s", progress.String(), report.String())
	if err != nil {
		t.Fatal(err)
	}
	return r
}
