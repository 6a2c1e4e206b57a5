package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/keelson-dev/keelson/internal/process"
)

// component is one process of the control plane and how to look after it.
type component struct {
	name    string
	args    func() []string // the command line, asked for anew before each start
	prepare func() error    // what must be done before each start, if anything

	// ready tells whether the component can be used; nil where nobody waits for it.
	ready         func(ctx context.Context) error
	readyInterval time.Duration
	readyTimeout  time.Duration

	process *process.Process
	failed  chan error // gets one error when the component ends again and again before it was ever ready
}

// A component that dies is started again at once, then after pauses that grow to ten seconds. One that has run for a
// minute has earned its first restart at once again.
var restartBackoff = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 7, Cap: 10 * time.Second}

const (
	goodRun = time.Minute
	// attempts is how many ends in a row, before a component was ever ready, make a start fail.
	attempts = 3
)

// launch starts a component, or takes over its running process, and looks after it from now on.
// A component that is looked after already is left alone.
func (cp *ControlPlane) launch(ctx context.Context, c *component) error {
	cp.mu.Lock()
	known := cp.launched[c.name]
	cp.launched[c.name] = true
	cp.mu.Unlock()
	if known {
		return nil
	}
	c.failed = make(chan error, 1)
	if err := cp.takeOver(ctx, c); err != nil {
		return err
	}
	cp.wg.Go(func() { cp.supervise(cp.supervision, c) })
	return nil
}

// takeOver goes on with the process that an earlier run left behind, if its command line is the one that we would
// use; another one is replaced.
func (cp *ControlPlane) takeOver(ctx context.Context, c *component) error {
	p, err := cp.procs.Find(c.name)
	switch {
	case errors.Is(err, process.ErrNotFound):
		return cp.startComponent(c)
	case err != nil:
		return err
	case p.Status().State != process.Running:
		return cp.startComponent(c)
	}
	hash := cp.commandHash(c)
	cp.mu.Lock()
	same := cp.state.Commands[c.name] == hash
	cp.mu.Unlock()
	if same {
		c.process = p
		return nil
	}
	cp.opts.Log.Info("Restarting a component, because its flags or its binary have changed", "component", c.name, "pid", p.PID())
	if err := p.Stop(ctx, process.StopOptions{TermTimeout: 10 * time.Second, KillTimeout: 5 * time.Second}); err != nil {
		return err
	}
	return cp.startComponent(c)
}

// startComponent starts the process of a component.
func (cp *ControlPlane) startComponent(c *component) error {
	if c.prepare != nil {
		if err := c.prepare(); err != nil {
			return fmt.Errorf("prepare %s: %w", c.name, err)
		}
	}
	if err := cp.rememberCommand(c.name, cp.commandHash(c)); err != nil {
		return err
	}
	p, err := cp.procs.Start(process.Spec{
		ID:      c.name,
		Path:    cp.opts.Binary,
		Args:    append([]string{c.name}, c.args()...),
		WorkDir: cp.dir.sockets(),
		Log:     cp.dir.log(c.name),
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", c.name, err)
	}
	c.process = p
	return nil
}

func (cp *ControlPlane) rememberCommand(name, hash string) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.state.Commands[name] == hash {
		return nil
	}
	cp.state.Commands[name] = hash
	return saveState(cp.dir, cp.state)
}

// commandHash stands for the command line of a component and the address of the API, to tell whether either has
// changed since the component was started.
func (cp *ControlPlane) commandHash(c *component) string {
	command := append([]string{cp.opts.Binary, cp.Server()}, c.args()...)
	sum := sha256.Sum256([]byte(strings.Join(command, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// supervise starts a component again whenever it ends, until the context ends.
func (cp *ControlPlane) supervise(ctx context.Context, c *component) {
	backoff := restartBackoff
	ends := 0
	for {
		began := cp.opts.Clock.Now()
		select {
		case <-ctx.Done():
			return
		case <-c.process.Done():
		}
		if ctx.Err() != nil {
			return // it ended because we are stopping
		}
		status := c.process.Status()
		cp.opts.Log.Info("A component has ended and is started again", "component", c.name, "ended", describeEnd(status), "log", cp.dir.log(c.name))
		if ends++; ends == attempts {
			c.failed <- fmt.Errorf("%s has ended %d times (%s); its log is %s and ends with:\n%s",
				c.name, ends, describeEnd(status), cp.dir.log(c.name), indent(status.LogTail))
		}
		if cp.opts.Clock.Since(began) >= goodRun {
			backoff = restartBackoff
		} else if !cp.pause(ctx, backoff.Step()) {
			return
		}
		if !cp.restart(ctx, c, &backoff) {
			return
		}
	}
}

// restart tries to start a component until it succeeds (true) or the context ends (false).
func (cp *ControlPlane) restart(ctx context.Context, c *component, backoff *wait.Backoff) bool {
	for {
		err := cp.startComponent(c)
		if err == nil {
			return true
		}
		cp.opts.Log.Error(err, "Could not start a component, trying again", "component", c.name)
		if !cp.pause(ctx, backoff.Step()) {
			return false
		}
	}
}

// pause waits; false when the context ended first.
func (cp *ControlPlane) pause(ctx context.Context, d time.Duration) bool {
	timer := cp.opts.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

// awaitReady waits until a component is ready. The error says what the component's log says when it will not be.
func (c *component) awaitReady(ctx context.Context) error {
	if c.ready == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.readyTimeout)
	defer cancel()
	ticker := time.NewTicker(c.readyInterval)
	defer ticker.Stop()
	for {
		lastErr := c.ready(ctx)
		if lastErr == nil {
			return nil
		}
		select {
		case err := <-c.failed:
			return err
		case <-ctx.Done():
			return fmt.Errorf("%s was not ready in time (%w): %w", c.name, context.Cause(ctx), lastErr)
		case <-ticker.C:
		}
	}
}

// describeEnd says how a process ended.
func describeEnd(s process.Status) string {
	switch {
	case s.State != process.Exited:
		return "exit status unknown"
	case s.Signal != "":
		return "killed by " + s.Signal
	default:
		return fmt.Sprintf("exit code %d", s.ExitCode)
	}
}

func indent(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) > 10 {
		lines = lines[len(lines)-10:]
	}
	return "  " + strings.Join(lines, "\n  ")
}
