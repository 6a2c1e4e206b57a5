package controlplane_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/process"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/signals"
)

const (
	// helperVariable makes the test binary a program that looks after a control plane. It holds helperArgs as JSON.
	helperVariable = "KEELSON_TEST_HELPER"
	// waitTimeout is for what must happen, on a machine that is busy.
	waitTimeout = 3 * time.Minute
)

var names = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"}

type helperArgs struct {
	Dir, Binary string
	Nodes       int
	APIOnly     bool
	Rotation    string // with an overlap of an hour
	KillAt      string // the step at which the program kills itself with SIGKILL, as stepName has it
}

// runHelper starts a control plane, says so in one line and looks after it until its standard input is closed or it is
// killed. It does not stop it.
func runHelper(encoded string) int {
	var args helperArgs
	if err := json.Unmarshal([]byte(encoded), &args); err != nil {
		panic(err)
	}
	cp, err := controlplane.Start(context.Background(), controlplane.Options{
		Dir: args.Dir, Binary: args.Binary, Nodes: args.Nodes, APIOnly: args.APIOnly, Rotation: args.Rotation, RotationOverlap: time.Hour,
		Progress: func(s controlplane.Step) {
			if stepName(s) == args.KillAt {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) //nolint:forbidigo // this process
				select {}
			}
		},
	})
	if err == nil && !args.APIOnly && args.Nodes > 0 {
		err = cp.Settle(context.Background())
	}
	fmt.Println(errorLine(err))
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

func errorLine(err error) string {
	if err == nil {
		return "ready"
	}
	return strings.ReplaceAll(err.Error(), "\n", " ")
}

func stepName(s controlplane.Step) string {
	if s.Done {
		return s.Name + " done"
	}
	return s.Name + " begun"
}

// helper is a program that looks after a control plane.
type helper struct {
	cmd    *exec.Cmd
	stdout *bufio.Reader
}

func startHelper(t *testing.T, args helperArgs) *helper {
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
	cmd.Env = append(os.Environ(), helperVariable+"="+string(encoded))
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h := &helper{cmd: cmd, stdout: bufio.NewReader(stdout)}
	t.Cleanup(h.kill)
	return h
}

// kill ends the helper with SIGKILL and waits for it. It may be called again.
func (h *helper) kill() {
	if h.cmd.ProcessState == nil {
		_ = h.cmd.Process.Kill() // it may have ended
		_ = h.cmd.Wait()         // with the error that it was killed
	}
}

// mustBeReady waits until the helper has started its control plane.
func (h *helper) mustBeReady(t *testing.T) {
	t.Helper()
	line, err := h.stdout.ReadString('\n')
	if err != nil || line != "ready\n" {
		t.Fatalf("helper said %q, %v", line, err)
	}
}

// mustKillItself waits until the helper has come to the step at which it kills itself.
func (h *helper) mustKillItself(t *testing.T) {
	t.Helper()
	line, err := h.stdout.ReadString('\n')
	if !errors.Is(err, io.EOF) {
		t.Fatalf("helper said %q, %v; it should have been killed", line, err)
	}
	h.kill()
	if status, ok := h.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("helper ended by itself: %s", h.cmd.ProcessState)
	}
}

// slots are for control planes with real components, of which this machine has memory and processors for two.
var slots = make(chan struct{}, 2)

// newDir returns a data directory. When the test ends, whatever still runs in it is killed.
func newDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	t.Cleanup(func() {
		if t.Failed() {
			logLogs(t, dir)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // does not wait for a polite end
		if _, err := controlplane.StopAll(ctx, dir); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	return dir
}

// realDir is newDir for a control plane with real components, and the binary of these.
func realDir(t *testing.T) (dir, binary string) {
	t.Helper()
	binary, err := env.Binary("keelson-kube")
	if err != nil {
		t.Fatal(err)
	}
	slots <- struct{}{}
	t.Cleanup(func() { <-slots })
	return newDir(t), binary
}

// logLogs shows the end of every component's log.
func logLogs(t *testing.T, dir string) {
	statuses, err := process.Peek(filepath.Join(dir, "processes"))
	if err != nil {
		t.Log(err)
	}
	for _, s := range statuses {
		t.Logf("%s %s (pid %d, exit code %d %s), log:\n%s", s.ID, s.State, s.PID, s.ExitCode, s.Signal, s.LogTail)
	}
}

// start starts a control plane and settles it. It is stopped when the test ends.
func start(t *testing.T, opts controlplane.Options) *controlplane.ControlPlane {
	t.Helper()
	cp, err := controlplane.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cp.Detach() }) // newDir's clean-up ends what runs
	if opts.Nodes > 0 {
		if err := cp.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return cp
}

// always returns a function that returns a client.
func always(c kubernetes.Interface) func() kubernetes.Interface {
	return func() kubernetes.Interface { return c }
}

// client returns a client of the API of a data directory, as a user has it.
func client(t *testing.T, dir string) *kubernetes.Clientset {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	config.Timeout = 2 * time.Second
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// alive returns the components that run, by name.
func alive(t *testing.T, dir string) map[string]process.Status {
	t.Helper()
	statuses, err := process.Peek(filepath.Join(dir, "processes"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]process.Status{}
	for _, s := range statuses {
		if s.State == process.Running {
			all[s.ID] = s
		}
	}
	return all
}

// running returns the pids of the components that run, by name.
func running(t *testing.T, dir string) map[string]int {
	t.Helper()
	pids := map[string]int{}
	for name, s := range alive(t, dir) {
		pids[name] = s.PID
	}
	return pids
}

// census counts the processes on this machine that are components of a data directory, known to our records or not.
func census(t *testing.T, dir string) map[string]int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, entry := range entries {
		if _, err := strconv.Atoi(entry.Name()); err != nil {
			continue
		}
		// The directory of a process that has just ended is gone or empty.
		cwd, _ := os.Readlink(filepath.Join("/proc", entry.Name(), "cwd"))
		cmdline, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		args := strings.Split(string(cmdline), "\x00")
		if cwd == filepath.Join(dir, "sockets") && len(args) > 1 {
			count[args[1]]++
		}
	}
	return count
}

// requireProcesses fails the test unless these processes run. A component without a listener counts as running before it executes its
// program.
func requireProcesses(t *testing.T, dir string, want map[string]int) {
	t.Helper()
	eventually(t, "all components execute their programs", func() bool { return len(census(t, dir)) >= len(want) })
	if diff := cmp.Diff(want, census(t, dir)); diff != "" {
		t.Errorf("processes (-want +got):\n%s", diff)
	}
}

// kill ends a process with SIGKILL.
func kill(t *testing.T, pid int) {
	t.Helper()
	signals.Send(t, pid, syscall.SIGKILL)
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	eventuallyWithin(t, waitTimeout, what, condition)
}

func eventuallyWithin(t *testing.T, waitTimeout time.Duration, what string, condition func() bool) {
	t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(waitTimeout)
	for !condition() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("waited %s in vain: %s", waitTimeout, what)
		}
	}
}
