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
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// ignoreTimes compares what is the same in every run.
var ignoreTimes = cmpopts.IgnoreFields(Status{}, "PID", "StartedAt", "EndedAt")

func TestExitStatusIsKept(t *testing.T) {
	for _, test := range []struct {
		name   string
		script string
		want   Status
	}{
		{"success", "echo hello", Status{State: Exited, LogTail: "hello\n"}},
		{"failure, both outputs in the log", "echo out; echo err >&2; exit 7", Status{State: Exited, ExitCode: 7, LogTail: "out\nerr\n"}},
		{"its own signal", "kill -9 $$", Status{State: Exited, ExitCode: -1, Signal: "SIGKILL"}},
		{"a signal that ends by default", "kill -15 $$", Status{State: Exited, ExitCode: -1, Signal: "SIGTERM"}},
		{"no standard input", "cat; exit 3", Status{State: Exited, ExitCode: 3}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			id, dir := newID(), newDir(t)
			test.want.ID = id
			gate := filepath.Join(t.TempDir(), "gate")
			spec := script(id, fmt.Sprintf("until [ -e %s ]; do sleep 0.01; done; %s", gate, test.script))

			before := time.Now()
			// A manager that is killed before the process ends: nobody is there to see it.
			manager := startHelper(t, "start", helperArgs{Dir: dir, Spec: spec}, nil)
			manager.mustResult(t)
			manager.kill()
			if err := os.WriteFile(gate, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			eventually(t, "exit.json", func() bool { return readJSON(filepath.Join(dir, id, exitFile), &exited{}) })
			got := waitDone(t, find(t, open(t, dir), id))
			if diff := cmp.Diff(test.want, got, ignoreTimes); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if got.PID == 0 || got.StartedAt.Before(before) || got.EndedAt.Before(got.StartedAt) {
				t.Errorf("pid %d, started %s, ended %s", got.PID, got.StartedAt, got.EndedAt)
			}
		})
	}
}

func TestDoneAndStatusWhileWatched(t *testing.T) {
	t.Parallel()
	id := newID()
	d := open(t, newDir(t))
	p := start(t, d, script(id, "echo up; exec sleep 600"))
	eventually(t, "the first line of output", func() bool { return p.Status().LogTail != "" })
	if diff := cmp.Diff(Status{ID: id, State: Running, LogTail: "up\n"}, p.Status(), ignoreTimes); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	d = reopen(t, d)
	p = find(t, d, id)
	select {
	case <-p.Done():
		t.Fatal("Done of a running process is closed")
	default:
	}
	if err := p.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	want := Status{ID: id, State: Exited, ExitCode: -1, Signal: "SIGINT", LogTail: "up\n"}
	if diff := cmp.Diff(want, waitDone(t, p), ignoreTimes); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if err := p.Signal(syscall.SIGINT); !errors.Is(err, ErrNotFound) {
		t.Errorf("signal to a process that is gone: %v", err)
	}
	if err := p.Stop(t.Context(), StopOptions{}); err != nil {
		t.Errorf("stop of a process that is gone: %v", err)
	}
}

func TestOneProcessForEachID(t *testing.T) {
	t.Parallel()
	id := newID()
	d := open(t, newDir(t))
	p := start(t, d, script(id, "echo first; exec sleep 600"))
	if _, err := d.Start(sleeper(id)); !errors.Is(err, ErrExists) {
		t.Errorf("second start: %v", err)
	}
	if err := d.Remove(id); !errors.Is(err, ErrRunning) {
		t.Errorf("remove while running: %v", err)
	}
	eventually(t, "the first line of output", func() bool { return p.Status().LogTail != "" })
	if err := p.Stop(t.Context(), StopOptions{}); err != nil {
		t.Fatal(err)
	}
	again := start(t, d, script(id, "echo second; exit 4"))
	if again.PID() == p.PID() {
		t.Error("the second process has the pid of the first")
	}
	want := []Status{
		{ID: id, State: Exited, ExitCode: -1, Signal: "SIGTERM", LogTail: "first\n"},
		{ID: id, State: Exited, ExitCode: 4, LogTail: "second\n"},
	}
	if diff := cmp.Diff(want, []Status{p.Status(), waitDone(t, again)}, ignoreTimes); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if err := d.Remove(id); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(d.path, id)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the record folder is still there: %v", err)
	}
	if _, err := d.Find(id); !errors.Is(err, ErrNotFound) {
		t.Errorf("find after remove: %v", err)
	}
	if err := d.Remove(id); err != nil {
		t.Errorf("second remove: %v", err)
	}
}

func TestFailedStartLeavesNothing(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("no program"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		change func(*Spec)
		want   error
	}{
		{"no such program", func(s *Spec) { s.Path = "/no/such/program" }, fs.ErrNotExist},
		{"not executable", func(s *Spec) { s.Path = "/etc/passwd" }, fs.ErrPermission},
		{"no program", func(s *Spec) { s.Path = plain }, syscall.ENOEXEC},
		{"no such directory", func(s *Spec) { s.WorkDir = "/no/such/directory" }, fs.ErrNotExist},
		{"the log cannot be opened", func(s *Spec) { s.Log = "/" }, syscall.EISDIR},
		{"arguments too long", func(s *Spec) { s.Args = []string{strings.Repeat("x", 256<<10)} }, syscall.E2BIG},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := open(t, newDir(t))
			spec := sleeper(newID())
			test.change(&spec)
			if _, err := d.Start(spec); !errors.Is(err, test.want) || !strings.Contains(err.Error(), spec.ID) {
				t.Errorf("start: %v, want %v", err, test.want)
			}
			if _, err := d.Find(spec.ID); !errors.Is(err, ErrNotFound) {
				t.Errorf("find: %v", err)
			}
			if _, err := os.Stat(filepath.Join(d.path, spec.ID)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the record folder is still there: %v", err)
			}
			start(t, d, sleeper(spec.ID))
		})
	}
	t.Run("invalid", func(t *testing.T) {
		d := open(t, newDir(t))
		for _, spec := range []Spec{{ID: "", Path: "sleep"}, {ID: "lock", Path: "sleep"}, {ID: "../a", Path: "sleep"}, {ID: "a"}, {ID: "a", Path: "sleep", Args: []string{"\xff"}}} {
			if _, err := d.Start(spec); err == nil {
				t.Errorf("start of %+v succeeded", spec)
			}
		}
	})
}

func TestEnvironment(t *testing.T) {
	t.Setenv("KEELSON_PROCESS", "outer:0")
	t.Setenv("KEELSON_SHIM", "outer:0")
	t.Setenv("INHERITED", "yes")
	d := open(t, newDir(t))
	environment := func(env []string) map[string]string {
		spec := Spec{ID: newID(), Path: "env", Env: env}
		p := start(t, d, spec)
		status := waitDone(t, p)
		got := map[string]string{}
		for line := range strings.Lines(status.LogTail) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			got[name] = value
		}
		if got["KEELSON_PROCESS"] != spec.ID+":"+p.rec.Nonce {
			t.Errorf("marker %q", got["KEELSON_PROCESS"])
		}
		delete(got, "KEELSON_PROCESS")
		data, err := os.ReadFile(filepath.Join(p.folder, recordFile))
		if err != nil || strings.Contains(string(data), "s3cret") {
			t.Errorf("error %v, or the environment is in the record: %s", err, data)
		}
		return got
	}
	want := map[string]string{"A": "1", "EMPTY": "", "PASSWORD": "s3cret"}
	if diff := cmp.Diff(want, environment([]string{"A=1", "EMPTY=", "PASSWORD=s3cret", "KEELSON_PROCESS=outer:0"})); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{}, environment([]string{})); diff != "" {
		t.Errorf("empty environment (-want +got):\n%s", diff)
	}
	inherited := environment(nil)
	if _, ok := inherited["KEELSON_SHIM"]; ok || inherited["INHERITED"] != "yes" || inherited["GOGC"] != os.Getenv("GOGC") {
		t.Errorf("inherited environment: %v", inherited)
	}
}

func TestArgumentsAndDirectory(t *testing.T) {
	t.Parallel()
	d := open(t, newDir(t))
	work, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(work, "new", "the.log")
	p := start(t, d, Spec{
		ID: newID(), Path: "sh", Argv0: "a name", Args: []string{"-c", `pwd -P; echo "$0|$1|$2"`, "x", "", `"ü "`},
		WorkDir: work, Log: log,
	})
	if diff := cmp.Diff(work+"\nx||\"ü \"\n", waitDone(t, p).LogTail); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	for path, want := range map[string]fs.FileMode{
		d.path: 0o700, p.folder: 0o700, filepath.Join(d.path, lockFile): 0o600, log: 0o600,
		filepath.Join(p.folder, recordFile):  0o600,
		filepath.Join(p.folder, runningFile): 0o600,
		filepath.Join(p.folder, exitFile):    0o600,
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("mode of %s is %o, want %o", path, got, want)
		}
	}
	leftovers, err := filepath.Glob(filepath.Join(p.folder, "*.tmp"))
	if err != nil || len(leftovers) > 0 {
		t.Errorf("leftovers: %v, %v", leftovers, err)
	}
}

func TestLogRotates(t *testing.T) {
	for _, test := range []struct {
		name          string
		killed, found bool
	}{{"by the shim", false, false}, {"without a shim", true, false}, {"by a manager that finds no shim", true, true}} {
		t.Run(test.name, func(t *testing.T) { testLogRotates(t, test.killed, test.found) })
	}
}

func testLogRotates(t *testing.T, killed, found bool) {
	t.Parallel()
	d := open(t, newDir(t))
	spec := script(newID(), `i=0; while :; do i=$((i+1)); echo "line $i"; [ $((i % 20)) = 0 ] && sleep 0.005; done`)
	spec.LogMaxBytes = 1000
	p := start(t, d, spec)
	if killed {
		shim := shimOf(t, p)
		if err := shim.signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		shim.wait(waitTimeout)
	}
	if found {
		d = reopen(t, d)
		p = find(t, d, spec.ID)
	}
	size := func(suffix string) int64 {
		info, err := os.Stat(filepath.Join(p.folder, defaultLog+suffix))
		if err != nil {
			return -1
		}
		return info.Size()
	}
	eventually(t, "two rotated logs", func() bool { return size(".2") > 0 })
	var second string
	eventually(t, "a third rotation", func() bool {
		data, _ := os.ReadFile(filepath.Join(p.folder, defaultLog+".2")) // it may be renamed just now
		if second == "" {
			second = string(data)
		}
		return len(data) > 0 && string(data) != second
	})
	if err := p.Stop(t.Context(), StopOptions{}); err != nil {
		t.Fatal(err)
	}
	// A rotation that had begun may still copy.
	eventually(t, "the end of the last rotation", func() bool { return size("") >= 0 && size(".1") >= 1000 && size(".2") >= 1000 })
	if size(".3") != -1 {
		t.Errorf("a third rotated log of %d bytes", size(".3"))
	}
	data, err := os.ReadFile(filepath.Join(p.folder, defaultLog))
	if err != nil || strings.Contains(string(data), "\x00") {
		t.Errorf("error %v, or a hole in the log: the writer did not go on at its new end", err)
	}
}

// TestStartNeedsTheShim is not parallel: it changes what the whole process sees.
func TestStartNeedsTheShim(t *testing.T) {
	shimReady.Store(false)
	defer shimReady.Store(true)
	d := open(t, newDir(t))
	if _, err := d.Start(sleeper("a")); err == nil || !strings.Contains(err.Error(), "process.Shim") {
		t.Errorf("start: %v", err)
	}
	if _, err := d.Find("a"); !errors.Is(err, ErrNotFound) {
		t.Errorf("find: %v", err)
	}
}

func shimOf(t *testing.T, p *Process) *handle {
	t.Helper()
	h := openHandle(p.run.Shim, p.rec.shimMarker())
	if h == nil {
		t.Fatal("the shim is gone")
	}
	t.Cleanup(h.close)
	return h
}
