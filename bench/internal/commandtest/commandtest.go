// Package commandtest is what the tests of all benchmarks have in common.
package commandtest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/bench/internal/command"
)

// Quick runs a benchmark with --quick and more flags. It returns its options, and the results from their file.
func Quick[O command.Options, R command.Results](t *testing.T, b command.Benchmark[O, R], flags ...string) (O, R) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "results.json")
	options, err := b.Parse(append([]string{"--quick", "--json=" + file}, flags...))
	if err != nil {
		t.Fatal(err)
	}
	var report, progress strings.Builder
	_, err = b.Run(t.Context(), options, &report, &progress)
	t.Logf("%s%s", progress.String(), report.String())
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var results R
	if err := json.Unmarshal(data, &results); err != nil {
		t.Fatal(err)
	}
	return options, results
}

// Parse tests the command line of a benchmark: some lines give options, with a space between words, and the wrong ones are
// refused.
func Parse[O any](t *testing.T, parse func(args []string) (O, error), lines map[string]O, wrong ...string) {
	t.Helper()
	for line, want := range lines {
		got, err := parse(strings.Fields(line))
		if err != nil {
			t.Errorf("%q: %v", line, err)
			continue
		}
		var zero O
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(zero)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", line, diff)
		}
	}
	for _, line := range wrong {
		if got, err := parse(strings.Fields(line)); err == nil {
			t.Errorf("%q gives no error, but %+v", line, got)
		}
	}
}
