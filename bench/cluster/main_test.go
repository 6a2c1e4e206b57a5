package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/internal/process"
)

func TestMain(m *testing.M) {
	process.Shim() // the test binary is also the shim of the processes that it starts
	os.Exit(m.Run())
}

// TestQuick runs everything but the peer, with one cluster. What it measures of times and memory means nothing here; what
// it counts must be right.
func TestQuick(t *testing.T) {
	o := quick()
	o.dir = t.TempDir()
	o.JSON = filepath.Join(t.TempDir(), "results.json")
	var stdout, progress strings.Builder
	_, err := run(t.Context(), o, &stdout, &progress)
	t.Logf("%s%s", progress.String(), stdout.String())
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(o.JSON)
	if err != nil {
		t.Fatal(err)
	}
	var r results
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
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
	for _, tc := range []struct {
		name string
		args []string
		want func(*options)
	}{
		{"nothing gives the defaults", nil, func(o *options) { *o = defaults() }},
		{"quick gives less of everything", []string{"--quick"}, func(o *options) { *o = quick() }},
		{"what is asked for counts beside quick", []string{"--sizes=8,2,2,0", "--quick", "--peer", "--strict"}, func(o *options) {
			*o = quick()
			o.Sizes, o.Peer, o.Strict = []int{2, 8}, true, true
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parse(tc.args)
			if err != nil {
				t.Fatal(err)
			}
			var want options
			tc.want(&want)
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(options{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for _, args := range [][]string{{"--sizes=-1"}, {"--sizes=1000"}, {"--rounds=0"}, {"--restart=99"}, {"extra"}, {"--nonsense"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("parse(%v) gave no error", args)
		}
	}
}
