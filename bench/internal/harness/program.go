package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const stopTimeout = 35 * time.Second

// Program is a controller that runs as a process of its own.
type Program struct {
	name, log string
	cmd       *exec.Cmd
	terminate context.CancelFunc
	done      chan struct{} // closed when it has ended
}

// StartProgram starts a program that logs to stderr, and returns once it has logged some text.
func (c *Cluster) StartProgram(ctx context.Context, name, ready, path string, args ...string) (*Program, error) {
	log, err := os.CreateTemp(c.Dir, "*.log")
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // only this copy of it
	running, terminate := context.WithCancel(ctx)
	p := &Program{name: name, log: log.Name(), cmd: exec.CommandContext(running, path, args...), terminate: terminate, done: make(chan struct{})}
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay, p.cmd.Stderr = stopTimeout, log
	if err := p.cmd.Start(); err != nil {
		terminate()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // while has the state
		close(p.done)
	}()
	err = p.while(ctx, func(ctx context.Context) error {
		return Until(ctx, 20*time.Millisecond, func() error {
			text, err := os.ReadFile(p.log)
			if err == nil && !strings.Contains(string(text), ready) {
				err = fmt.Errorf("%s has not logged %q", name, ready)
			}
			return err
		})
	})
	if err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// StartManager starts `keelson manager` with some controllers as a user would, on free ports. It serves profiles.
func (c *Cluster) StartManager(ctx context.Context, controllers string, flags ...string) (*Program, error) {
	config := filepath.Join(c.Dir, "manager.yaml")
	const text = "apiVersion: config.keelson.dev/v1alpha1\nkind: KeelsonConfiguration\nmetrics: {profiling: true}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	args := []string{
		"manager", "--config=" + config, "--kubeconfig=" + c.Kubeconfig, "--controllers=" + controllers, "--logging-format=json",
		"--health-probe-bind-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0",
	}
	return c.StartProgram(ctx, "keelson manager", `"Manager is ready"`, c.Keelson, append(args, flags...)...)
}

// PID returns the id of the process.
func (p *Program) PID() int { return p.cmd.Process.Pid }

// AwaitIdle waits until the program has used less than a twentieth of a processor for some time. It returns when it last used more.
func (p *Program) AwaitIdle(ctx context.Context, quiet time.Duration) (last time.Time, err error) {
	const window = 500 * time.Millisecond
	last, before := time.Now(), ProcessorTime(p.PID())
	err = Until(ctx, window, func() error {
		used := ProcessorTime(p.PID())
		if used-before > window.Seconds()/20 {
			last = time.Now()
		}
		before = used
		if time.Since(last) < quiet {
			return fmt.Errorf("%s is busy", p.name)
		}
		return nil
	})
	return last, err
}

// metricsAddress is where the program says in its log that it serves metrics.
var metricsAddress = regexp.MustCompile(`"metrics":"([^"]+)"`)

// LiveHeap returns the memory of objects in a manager, after it has collected garbage. It is not that of the metrics, because reading
// those makes garbage for each object.
func (p *Program) LiveHeap(ctx context.Context) (bytes float64, err error) {
	text, err := p.get(ctx, "/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return 0, err
	}
	found := heapAlloc.FindStringSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("the heap profile of %s does not say how much is allocated", p.name)
	}
	return strconv.ParseFloat(found[1], 64)
}

var heapAlloc = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)

// get reads a path of the metrics server of a manager.
func (p *Program) get(ctx context.Context, path string) (string, error) {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return "", err
	}
	address := metricsAddress.FindSubmatch(text)
	if address == nil {
		return "", fmt.Errorf("%s does not say where it serves metrics", p.name)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+string(address[1])+path, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// Use does work while the program runs, with the id of its process, and then stops it. The context of the work also ends when
// the program does. Without a program, this process does the work.
func (p *Program) Use(ctx context.Context, work func(ctx context.Context, pid int) error) error {
	if p == nil {
		return work(ctx, os.Getpid())
	}
	err := p.while(ctx, func(ctx context.Context) error { return work(ctx, p.cmd.Process.Pid) })
	return errors.Join(err, p.stop())
}

// while does work with a context that also ends when the program does.
func (p *Program) while(ctx context.Context, work func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-ctx.Done():
		case <-p.done:
			text, _ := os.ReadFile(p.log) // of what is said here
			cancel(fmt.Errorf("%s ended (%s): %s", p.name, p.cmd.ProcessState, text[max(0, len(text)-4<<10):]))
		}
	}()
	return work(ctx)
}

// stop tells the program to end and waits until it has.
func (p *Program) stop() error {
	p.terminate()
	<-p.done
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL {
		return fmt.Errorf("%s was killed: it still ran %s after SIGTERM", p.name, stopTimeout)
	}
	return nil
}

// Output runs a program and returns its output, such as versions, with a comma between lines.
func Output(ctx context.Context, path string, args ...string) (string, error) {
	output, err := exec.CommandContext(ctx, path, args...).Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w", path, strings.Join(args, " "), err)
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return "", err
	}
	lines := strings.ReplaceAll(strings.TrimSpace(string(output)), "\n", ", ")
	return strings.Join(strings.Fields(lines), " "), nil
}

// BuildPeer builds a program of another project from the version in bench/peers, and returns that version.
func (c *Cluster) BuildPeer(ctx context.Context, path, module, pkg string) (version string, err error) {
	peers := filepath.Join(filepath.Dir(c.Keelson), "..", "bench", "peers")
	build := exec.CommandContext(ctx, "go", "-C", peers, "build", "-o", path, pkg)
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", pkg, err, output)
	}
	return Output(ctx, "go", "-C", peers, "list", "-m", "-f", "{{.Version}}", module)
}
