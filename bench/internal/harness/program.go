package harness

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/keelson-dev/keelson/internal/testing/env"
)

const (
	startTimeout = 30 * time.Second
	stopTimeout  = 35 * time.Second
)

// Program is a controller that runs as a process of its own.
type Program struct {
	PID int

	cmd     *exec.Cmd
	name    string
	metrics string        // URL; only of a manager
	done    chan struct{} // closed when it has ended
	log     []string      // the last lines, to be read when it has ended
	stopped bool
}

// StartProgram starts a program that logs to stderr, and returns once isReady has been true for a line.
func StartProgram(ctx context.Context, name, path string, args []string, isReady func(line string) bool) (*Program, error) {
	p := &Program{name: name, cmd: exec.CommandContext(ctx, path, args...), done: make(chan struct{})}
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = stopTimeout
	reader, writer := io.Pipe()
	p.cmd.Stderr = writer
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p.PID = p.cmd.Process.Pid
	go func() {
		_ = p.cmd.Wait() // see ended
		_ = writer.Close()
	}()
	ready := make(chan struct{})
	go func() {
		defer close(p.done)
		lines := bufio.NewScanner(reader)
		for waiting := true; lines.Scan(); {
			p.log = append(p.log[max(0, len(p.log)-20):], lines.Text())
			if waiting && isReady(lines.Text()) {
				waiting = false
				close(ready)
			}
		}
		_, _ = io.Copy(io.Discard, reader) // after a line that is too long
	}()
	var err error
	select {
	case <-ready:
		return p, nil
	case <-p.done:
		return nil, p.ended()
	case <-time.After(startTimeout):
		err = fmt.Errorf("%s is not ready after %s", name, startTimeout)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return nil, errors.Join(err, p.Stop(), p.ended())
}

// StartManager starts `keelson manager` with some controllers as a user would, on free ports.
func (c *Cluster) StartManager(ctx context.Context, binary, controllers string, flags ...string) (*Program, error) {
	args := append([]string{
		"manager", "--kubeconfig=" + c.Kubeconfig, "--controllers=" + controllers, "--logging-format=json",
		"--health-probe-bind-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0",
	}, flags...)
	metrics := ""
	isReady := func(line string) bool {
		var entry struct{ Msg, Metrics string }
		if json.Unmarshal([]byte(line), &entry) != nil {
			return false
		}
		if entry.Metrics != "" {
			metrics = "http://" + entry.Metrics + "/metrics"
		}
		return entry.Msg == "Manager is ready"
	}
	p, err := StartProgram(ctx, "keelson manager", binary, args, isReady)
	if err == nil {
		p.metrics = metrics
	}
	return p, err
}

// Metrics reads the metrics of a manager.
func (p *Program) Metrics(ctx context.Context) (Metrics, error) {
	return scrape(ctx, http.DefaultClient, p.metrics)
}

// During calls work with a context that also ends when the program does.
func (p *Program) During(ctx context.Context, work func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-ctx.Done():
		case <-p.done:
			cancel(p.ended())
		}
	}()
	return work(ctx)
}

// Stop tells the program to end and waits until it has. It does nothing if there is none, or if it was stopped before.
func (p *Program) Stop() error {
	if p == nil || p.stopped {
		return nil
	}
	p.stopped = true
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("%s was killed: it still ran %s after SIGTERM", p.name, stopTimeout), p.Kill())
	}
}

// Kill ends the program as a crash does, and waits until it is gone.
func (p *Program) Kill() error {
	p.stopped = true
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.done
	return nil
}

func (p *Program) ended() error {
	return fmt.Errorf("%s ended (%s): %s", p.name, p.cmd.ProcessState, strings.Join(p.log, "\n"))
}

// FindKeelson sets Binary unless a flag has, and returns its version.
func (r *Run) FindKeelson(ctx context.Context) (version string, err error) {
	if r.Binary == "" {
		if r.Binary, err = env.Binary("keelson"); err != nil {
			return "", err
		}
	}
	output, err := exec.CommandContext(ctx, r.Binary, "version", "-o", "json").Output()
	if err != nil {
		return "", fmt.Errorf("find the version of %s: %w", r.Binary, err)
	}
	var build struct{ Keelson string }
	if err := json.Unmarshal(output, &build); err != nil {
		return "", fmt.Errorf("find the version of %s: %w", r.Binary, err)
	}
	return build.Keelson, nil
}

// FirstLine runs a program and returns the first line of its output, such as a version.
func FirstLine(ctx context.Context, path string, args ...string) (string, error) {
	output, err := exec.CommandContext(ctx, path, args...).Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", path, strings.Join(args, " "), err)
	}
	line, _, _ := strings.Cut(string(output), "\n")
	return line, nil
}

// ComponentVersions returns the versions of what is built into keelson-kube.
func ComponentVersions(ctx context.Context, binary string) (string, error) {
	output, err := exec.CommandContext(ctx, binary, "version").Output()
	if err != nil {
		return "", fmt.Errorf("find the versions of %s: %w", binary, err)
	}
	return strings.ReplaceAll(strings.TrimSpace(string(output)), "\n", ", "), nil
}

// BuildPeer builds a program of another project from the version in bench/peers, and returns that version.
func BuildPeer(ctx context.Context, path, module, pkg string) (version string, err error) {
	keelson, err := env.Binary("keelson")
	if err != nil {
		return "", err
	}
	peers := filepath.Join(filepath.Dir(keelson), "..", "bench", "peers")
	build := exec.CommandContext(ctx, "go", "-C", peers, "build", "-o", path, pkg)
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", pkg, err, output)
	}
	return FirstLine(ctx, "go", "-C", peers, "list", "-m", "-f", "{{.Version}}", module)
}

// Idle watches a manager that has nothing to do, and returns the requests of that time. It sets the figures of IdleColumns.
func (c *Cluster) Idle(ctx context.Context, s *Sample, manager *Program, d time.Duration) (Requests, error) {
	before, err := c.Served(ctx)
	if err != nil {
		return nil, err
	}
	used := ProcessorTime(manager.PID)
	if err := Pause(ctx, d); err != nil {
		return nil, err
	}
	s.Set("busy", (ProcessorTime(manager.PID)-used)/max(d, time.Millisecond).Seconds())
	after, err := c.Served(ctx)
	if err != nil {
		return nil, err
	}
	memory, err := MemoryOf(manager.PID)
	if err != nil {
		return nil, err
	}
	s.SetMemory(memory)
	// The metrics come last: writing those of many objects takes memory.
	metrics, err := manager.Metrics(ctx)
	s.Set("live heap", metrics.Value("go_gc_heap_live_bytes"))
	s.Set("stacks", metrics.Value("go_memstats_stack_inuse_bytes"))
	s.Set("goroutines", metrics.Value("go_goroutines"))
	return after.Since(before), err
}
