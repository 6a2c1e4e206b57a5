package harness

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Quick runs a benchmark with --quick and more flags, for its test. It returns the run.
func Quick(t *testing.T, measure func(ctx context.Context, r *Run, args []string) error, flags ...string) *Run {
	t.Helper()
	var report, progress strings.Builder
	r := NewRun("quick", &progress)
	err := measure(t.Context(), r, append([]string{"--quick", "--json=" + filepath.Join(t.TempDir(), "results.json")}, flags...))
	if err == nil {
		err = r.Finish(&report)
	}
	t.Logf("%s%s", progress.String(), report.String())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// CheckTargets compares the targets of a run, by name, with values such as "1.2× MISS".
func CheckTargets(t *testing.T, r *Run, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for _, target := range r.Targets {
		got[target.Name] = fmt.Sprintf("%.4g%s %s", target.Value, target.Unit, target.verdict())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("targets (-want +got):\n%s", diff)
	}
}
