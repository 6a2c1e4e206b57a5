package process

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/atomicfile"
)

// The tests run managers that get killed. Such a manager is this test binary with these variables; what begins with
// testShim reaches its shims without that word.
const (
	testHelper = "KEELSON_TEST_HELPER" // which helper to be: start, stop, hold
	testArgs   = "KEELSON_TEST_ARGS"   // helperArgs as JSON
	testTrace  = "KEELSON_TEST_TRACE"  // file to append the names of steps and writes to
	testStep   = "KEELSON_TEST_STEP"   // <signal number> <name>: signal yourself at this step
	testFault  = "KEELSON_TEST_FAULT"  // <n> <write>: the n-th of these writes finds the disk full
	testShim   = "KEELSON_TEST_SHIM_"

	waitTimeout  = time.Minute            // for what must happen, on a machine that is busy
	shortTimeout = 300 * time.Millisecond // for shims that are known to hang
)

func TestMain(m *testing.M) {
	installHooks()
	Shim()
	if name := os.Getenv(testHelper); name != "" {
		os.Exit(runHelper(name))
	}
	logCheckInterval = 10 * time.Millisecond
	// The tests mostly wait, for the disk and for each other's processes. The command line still has the last word.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// installHooks makes this process, manager or shim, do what the variables say.
func installHooks() {
	if signal, name, ok := strings.Cut(os.Getenv(testStep), " "); ok {
		number, err := strconv.Atoi(signal)
		if err != nil {
			panic(err)
		}
		step = func(reached string) {
			trace("step " + reached)
			if reached == name {
				signalSelf(syscall.Signal(number))
			}
		}
	} else if os.Getenv(testTrace) != "" {
		step = func(reached string) { trace("step " + reached) }
	}
	wanted, faulty, _ := strings.Cut(os.Getenv(testFault), " ")
	var mu sync.Mutex
	seen := 0
	atomicfile.Fault = func(operation, path string) error {
		write := operation + " " + filepath.Base(path)
		if operation == "syncdir" {
			write = operation
		}
		trace("write " + write)
		mu.Lock()
		defer mu.Unlock()
		if write != faulty {
			return nil
		}
		if seen++; strconv.Itoa(seen) != wanted {
			return nil
		}
		return &os.PathError{Op: operation, Path: path, Err: syscall.ENOSPC}
	}
	ordinary := shimEnv
	shimEnv = func(rec record) []string {
		env := ordinary(rec)
		for _, entry := range os.Environ() {
			if rest, ok := strings.CutPrefix(entry, testShim); ok {
				env = append(env, "KEELSON_TEST_"+rest)
			}
		}
		return env
	}
}

func trace(line string) {
	path := os.Getenv(testTrace)
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		panic(err)
	}
	defer closeQuietly(f)
	if _, err := fmt.Fprintln(f, line); err != nil {
		panic(err)
	}
}

// signalSelf does not return from SIGKILL.
func signalSelf(sig syscall.Signal) {
	if err := syscall.Kill(os.Getpid(), sig); err != nil { //nolint:forbidigo // this process
		panic(err)
	}
	if sig == syscall.SIGKILL {
		select {}
	}
}

type helperArgs struct {
	Dir  string
	Spec Spec
	Stop bool // what "start" does afterwards
}

type helperResult struct {
	PID   int
	Error string
}

// helperWithoutFirstThread is a manager whose first thread has exited.
const helperWithoutFirstThread = "without-first-thread"

func init() {
	if os.Getenv(testHelper) == helperWithoutFirstThread {
		runtime.LockOSThread() // TestMain runs on the first thread then
	}
}

// runHelper is a manager. It says what became of it in one line and stays until its standard input is closed.
func runHelper(name string) int {
	var args helperArgs
	if err := json.Unmarshal([]byte(os.Getenv(testArgs)), &args); err != nil {
		panic(err)
	}
	var result helperResult
	d, err := Open(args.Dir)
	if err == nil {
		var p *Process
		switch name {
		case "start":
			p, err = d.Start(args.Spec)
		case "stop":
			if p, err = d.Find(args.Spec.ID); err == nil {
				err = p.Stop(context.Background(), StopOptions{
					Polite:        func(context.Context) error { return nil },
					PoliteTimeout: time.Millisecond,
					TermTimeout:   time.Millisecond,
				})
			}
		case "remove":
			err = d.Remove(args.Spec.ID)
		case "hold":
		}
		if p != nil {
			result.PID = p.PID()
		}
	}
	if err != nil {
		result.Error = err.Error()
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		panic(err)
	}
	if name == helperWithoutFirstThread {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
		_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0) // ends this thread only
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends us
	return 0
}

// helper is a manager in a process of its own.
type helper struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
}

// startHelper starts one; env is added to its environment, files to what it inherits.
func startHelper(t *testing.T, name string, args helperArgs, env []string, files ...*os.File) *helper {
	t.Helper()
	encoded, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), testHelper+"="+name, testArgs+"="+string(encoded))
	cmd.Env = append(cmd.Env, env...)
	cmd.ExtraFiles = files
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h := &helper{cmd: cmd, stdin: stdin, stdout: bufio.NewReader(stdout)}
	t.Cleanup(h.kill)
	return h
}

// result returns what the helper says, false if it was killed before it could.
func (h *helper) result(t *testing.T) (helperResult, bool) {
	t.Helper()
	line, err := h.stdout.ReadString('\n')
	if errors.Is(err, io.EOF) {
		h.kill()
		status, ok := h.cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !ok || status.Signal() != syscall.SIGKILL {
			t.Fatalf("helper ended by itself: %s", h.cmd.ProcessState)
		}
		return helperResult{}, false
	}
	if err != nil {
		t.Fatal(err)
	}
	var result helperResult
	if err := json.Unmarshal([]byte(line), &result); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return result, true
}

// mustResult fails the test if the helper was killed or reports an error.
func (h *helper) mustResult(t *testing.T) helperResult {
	t.Helper()
	result, alive := h.result(t)
	if !alive || result.Error != "" {
		t.Fatalf("helper: alive %t, error %q", alive, result.Error)
	}
	return result
}

// kill ends the helper with SIGKILL and waits for it. It may be called again.
func (h *helper) kill() {
	if h.cmd.ProcessState == nil {
		_ = h.cmd.Process.Kill() // it may have ended
		_ = h.cmd.Wait()         // the state tells
	}
}

// newDir returns a directory for records. At the end of the test whatever still runs in it is killed.
func newDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "processes")
	t.Cleanup(func() {
		d, err := Open(dir)
		if err != nil {
			t.Errorf("clean up: %v", err)
			return
		}
		defer closeQuietly(d)
		all, _ := d.List() // damaged records have no process
		for _, p := range all {
			if err := p.Stop(context.Background(), StopOptions{TermTimeout: time.Millisecond, KillTimeout: waitTimeout}); err != nil {
				t.Errorf("clean up: %v", err)
			}
			p.endShim()
		}
	})
	return dir
}

// open opens dir with the usual timeout for hanging shims, or with another one.
func open(t *testing.T, dir string, otherTimeout ...time.Duration) *Dir {
	t.Helper()
	d, err := openDir(dir, append(otherTimeout, defaultShimTimeout)[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func reopen(t *testing.T, d *Dir) *Dir {
	t.Helper()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return open(t, d.path)
}

func start(t *testing.T, d *Dir, spec Spec) *Process {
	t.Helper()
	p, err := d.Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func find(t *testing.T, d *Dir, id string) *Process {
	t.Helper()
	p, err := d.Find(id)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func waitDone(t *testing.T, p *Process) Status {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(waitTimeout):
		t.Fatalf("Done of %s (pid %d) was not closed", p.ID(), p.PID())
	}
	return p.Status()
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(waitTimeout); !condition(); <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s in vain: %s", waitTimeout, what)
		}
	}
}

// newID returns an ID that no other test has, so that its processes can be counted on the whole machine.
func newID() string { return fmt.Sprintf("test-%016x", rand.Uint64()) }

// sleeper runs until it is told to end.
func sleeper(id string) Spec {
	return Spec{ID: id, Path: "sleep", Args: []string{"600"}}
}

// script runs a shell script.
func script(id, text string) Spec {
	return Spec{ID: id, Path: "sh", Args: []string{"-c", text}}
}
