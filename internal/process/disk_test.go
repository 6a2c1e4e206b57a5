package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/internal/atomicfile"
)

// The writes of a start, in order; the disk is full at each of them in turn. The lists are checked against a trace.
var (
	managerWrites = []string{
		"syncdir", "create record.json.tmp", "write record.json.tmp", "sync record.json.tmp", "rename record.json",
	}
	shimWrites = []string{
		"create exit.json.tmp", "write exit.json.tmp",
		"create running.json.tmp", "write running.json.tmp", "rename running.json",
	}
	shimEndWrites = []string{"sync exit.json.tmp", "rename exit.json", "syncdir"}
)

func faultAt(n int, write string) string { return fmt.Sprintf("%s=%d %s", testFault, n, write) }

func TestFaultsAreComplete(t *testing.T) {
	t.Parallel()
	dir, path := newDir(t), filepath.Join(t.TempDir(), "trace")
	spec := script(newID(), "exit 3")
	h := startHelper(t, "start", helperArgs{Dir: dir, Spec: spec},
		[]string{testTrace + "=" + path, inShim(testTrace + "=" + path + "-shim")})
	h.mustResult(t)
	h.kill()
	waitDone(t, find(t, open(t, dir), spec.ID))
	got := map[string][]string{"manager": traced(t, path, "write"), "shim": traced(t, path+"-shim", "write")}
	want := map[string][]string{"manager": managerWrites, "shim": append(shimWrites, shimEndWrites...)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

// TestFullDiskDuringStart: a clear error, nothing runs, nothing is left, and once there is room the start succeeds.
func TestFullDiskDuringStart(t *testing.T) {
	type fullAt struct {
		name  string
		write string
		fault string
	}
	var tests []fullAt
	for _, write := range managerWrites {
		tests = append(tests, fullAt{"manager, " + write, write, faultAt(1, write)})
	}
	tests = append(tests, fullAt{"manager, second syncdir", "syncdir", faultAt(2, "syncdir")})
	for _, write := range shimWrites {
		tests = append(tests, fullAt{"shim, " + write, write, inShim(faultAt(1, write))})
	}
	for _, test := range tests {
		for _, replace := range []bool{false, true} {
			if replace && test.name == "manager, second syncdir" {
				continue // there is only one: the folder exists
			}
			t.Run(fmt.Sprintf("%s, replace %t", test.name, replace), func(t *testing.T) {
				t.Parallel()
				dir, spec := newDir(t), sleeper(newID())
				if replace {
					previousRecord(t, dir, spec.ID)
				}
				h := startHelper(t, "start", helperArgs{Dir: dir, Spec: spec}, []string{test.fault})
				result, alive := h.result(t)
				if !alive {
					t.Fatal("the manager was killed")
				}
				if !strings.Contains(result.Error, syscall.ENOSPC.Error()) || !strings.Contains(result.Error, spec.ID) {
					t.Errorf("error %q", result.Error)
				}
				requireCensus(t, spec.ID, census{})
				h.kill()
				for _, pattern := range []string{"*.tmp", runningFile} {
					left, err := filepath.Glob(filepath.Join(dir, spec.ID, pattern))
					if err != nil || len(left) > 0 && !replace {
						t.Errorf("left: %v, %v", left, err)
					}
				}
				settled(t, dir, spec)
			})
		}
	}
}

// TestFullDiskAtTheEnd: the exit status is written as soon as there is room again.
func TestFullDiskAtTheEnd(t *testing.T) {
	for _, test := range []struct {
		name  string
		fault string
	}{
		{"create", faultAt(2, "create exit.json.tmp")}, // the first one is the reservation
		{"write", faultAt(2, "write exit.json.tmp")},
		{"sync", faultAt(1, "sync exit.json.tmp")},
		{"rename", faultAt(1, "rename exit.json")},
		{"syncdir", faultAt(1, "syncdir")},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir, spec := newDir(t), script(newID(), "exit 3")
			h := startHelper(t, "start", helperArgs{Dir: dir, Spec: spec}, []string{inShim(test.fault)})
			h.mustResult(t)
			h.kill()
			want := Status{ID: spec.ID, State: Exited, ExitCode: 3}
			if diff := cmp.Diff(want, waitDone(t, find(t, open(t, dir), spec.ID)), ignoreTimes); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

// TestFullDiskDoesNotKeepUsFromStopping: finding and stopping what runs needs no space.
func TestFullDiskDoesNotKeepUsFromStopping(t *testing.T) {
	restore := atomicfile.Fault
	defer func() { atomicfile.Fault = restore }()
	id := newID()
	d := open(t, newDir(t))
	p := start(t, d, sleeper(id))
	shim := shimOf(t, p)
	if err := shim.signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	shim.wait(waitTimeout)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(p.folder, runningFile)); err != nil {
		t.Fatal(err)
	}
	atomicfile.Fault = func(operation, path string) error {
		return &os.PathError{Op: operation, Path: path, Err: syscall.ENOSPC}
	}
	d = open(t, d.path)
	p = find(t, d, id)
	if got := p.Status().State; got != Running {
		t.Errorf("state %s", got)
	}
	if err := p.Stop(t.Context(), StopOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := d.Start(sleeper(id)); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("start: %v", err)
	}
	if err := d.Remove(id); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(p.folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the record folder is still there: %v", err)
	}
}
