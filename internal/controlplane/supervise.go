package controlplane

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/keelson-dev/keelson/internal/process"
)

// component is one process of the control plane and how to look after it.
type component struct {
	name    string
	binary  string                          // empty: keelson-kube, with the name of the component as its first argument
	args    func() []string                 // the command line, evaluated before each start
	later   []string                        // more arguments, whose absence is no reason to replace a running process
	inputs  []string                        // files that are read at the start only, so that a change of them needs a restart
	follows string                          // the component after whose restart this one must be restarted, if any
	prepare func(ctx context.Context) error // runs before each start, if set

	// ready reports whether the component can be used; nil if no start waits for it.
	ready         func(ctx context.Context) error
	readyInterval time.Duration
	readyTimeout  time.Duration

	// restarted is called after the component has ended and was started again. It must not wait.
	restarted func(ctx context.Context)

	process *process.Process // belongs to launch, then to supervise
	absent  bool             // when we came, it was not running; set by launch
	started bool             // by us, not found running; guarded by ControlPlane.mu
	renewed atomic.Bool      // we have ended it, for a new one
}

// A component that dies is started again at once, then after pauses that grow to ten seconds. One that has run for a
// minute has earned its first restart at once again.
var restartBackoff = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 7, Cap: 10 * time.Second}

const goodRun = time.Minute

// newBackoff returns the pauses of a component that has not died lately.
func (o Options) newBackoff() wait.Backoff {
	backoff := restartBackoff
	if o.RestartPause > 0 {
		backoff.Duration, backoff.Cap = min(backoff.Duration, o.RestartPause), o.RestartPause
	}
	return backoff
}

// errLeaving is the error of starting a component of a control plane that is being stopped or left.
var errLeaving = errors.New("the control plane is being stopped")

// launch starts a component, or takes over its running process, and looks after it from now on.
// A component that is looked after already is left alone.
func (cp *ControlPlane) launch(ctx context.Context, c *component) error {
	cp.mu.Lock()
	if cp.leaving {
		cp.mu.Unlock()
		return fmt.Errorf("start %s: %w", c.name, errLeaving)
	}
	if cp.launched[c.name] != nil {
		cp.mu.Unlock()
		return nil
	}
	cp.launched[c.name] = c
	cp.wg.Add(1) // a Stop waits for us, and then stops what we start
	cp.mu.Unlock()
	defer cp.wg.Done()

	if err := cp.takeOver(ctx, c); err != nil {
		cp.mu.Lock()
		defer cp.mu.Unlock()
		delete(cp.launched, c.name)
		return err
	}
	cp.wg.Go(func() { cp.supervise(cp.supervision, c) })
	return nil
}

// takeOver adopts the process that an earlier run left behind if it has the command line that we would start; otherwise it
// replaces the process.
func (cp *ControlPlane) takeOver(ctx context.Context, c *component) error {
	p, err := cp.procs.Find(c.name)
	if err != nil && !errors.Is(err, process.ErrNotFound) {
		return err
	}
	if err != nil || p.Status().State != process.Running {
		c.absent = true
		return cp.startComponent(ctx, c)
	}
	hash, err := cp.commandHash(c)
	if err != nil {
		return err
	}
	cp.mu.Lock()
	same := cp.state.Commands[c.name] == hash
	cp.mu.Unlock()
	switch {
	case !same:
		cp.opts.Log.Info("Restarting a component, because its flags, its keys or its binary have changed", "component", c.name, "pid", p.PID())
	case c.follows != "" && cp.isOlder(p, c.follows):
		cp.opts.Log.Info("Restarting a component, because "+c.follows+" was", "component", c.name, "pid", p.PID())
	default:
		c.process = p
		return nil
	}
	if err := stopProcess(ctx, p, patience(c.name)); err != nil {
		return err
	}
	return cp.startComponent(ctx, c)
}

// isOlder reports whether a process was started before that of another component.
func (cp *ControlPlane) isOlder(p *process.Process, than string) bool {
	other, err := cp.procs.Find(than)
	return err == nil && p.Status().StartedAt.Before(other.Status().StartedAt)
}

// startComponent starts the process of a component.
func (cp *ControlPlane) startComponent(ctx context.Context, c *component) error {
	if c.prepare != nil {
		if err := c.prepare(ctx); err != nil {
			return fmt.Errorf("prepare %s: %w", c.name, err)
		}
	}
	hash, err := cp.commandHash(c)
	if err != nil {
		return err
	}
	if err := cp.rememberCommand(c.name, hash); err != nil {
		return err
	}
	path, args := cp.command(c)
	p, err := cp.procs.Start(process.Spec{
		ID:      c.name,
		Path:    path,
		Args:    args,
		Env:     append(componentEnv(os.Environ()), append(cp.opts.Env, marker(string(cp.dir)))...),
		WorkDir: cp.dir.sockets(),
		Log:     cp.dir.log(c.name),
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", c.name, err)
	}
	c.process = p
	cp.mu.Lock()
	defer cp.mu.Unlock()
	c.started = true
	return nil
}

// command returns the program of a component, and its arguments.
func (cp *ControlPlane) command(c *component) (path string, args []string) {
	if c.binary != "" {
		return c.binary, slices.Concat(c.args(), c.later)
	}
	return cp.opts.Binary, slices.Concat([]string{c.name}, c.args(), c.later)
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

// commandHash stands for the command line of a component, but what it may lack, and the files that it reads only once, to tell
// whether either has changed since the component was started.
func (cp *ControlPlane) commandHash(c *component) (string, error) {
	sum := sha256.New()
	for _, arg := range slices.Concat([]string{cmp.Or(c.binary, cp.opts.Binary)}, c.args(), cp.opts.Env) {
		fmt.Fprintf(sum, "%q ", arg)
	}
	for _, path := range c.inputs {
		data, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("%s needs this file: %w", c.name, err)
		}
		fmt.Fprintf(sum, "%q ", data)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

// supervise starts a component again whenever it ends, until the context ends.
func (cp *ControlPlane) supervise(ctx context.Context, c *component) {
	backoff, atOnce := cp.opts.newBackoff(), true
	for {
		began := time.Now()
		select {
		case <-ctx.Done():
			return
		case <-c.process.Done():
		}
		if ctx.Err() != nil {
			return // it ended because we are stopping
		}
		status := c.process.Status()
		log := cp.dir.log(c.name)
		cp.opts.Changed()
		cp.opts.Log.Info("A component has ended and is started again", "component", c.name, "ended", describeEnd(status), "log", log)
		cp.endings.note(c.name, fmt.Errorf("%s; its log is %s and ends with:\n%s", describeEnd(status), log, indent(status.LogTail)))
		if c.renewed.Swap(false) || time.Since(began) >= goodRun {
			backoff, atOnce = cp.opts.newBackoff(), true
		}
		if !cp.restart(ctx, c, &backoff, atOnce) {
			return
		}
		atOnce = false
		cp.opts.Changed()
		if c.restarted != nil {
			c.restarted(ctx)
		}
		if followers := cp.followers(c.name); len(followers) > 0 {
			cp.wg.Go(func() { cp.renew(ctx, followers, c) })
		}
	}
}

// followers returns the components that follow another one. What is launched later is not older than that.
func (cp *ControlPlane) followers(name string) []*component {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Values(cp.launched)), func(c *component) bool { return c.follows != name })
}

// renew ends the followers of a component that was started again as soon as that is ready, so that they are started again, too.
func (cp *ControlPlane) renew(ctx context.Context, followers []*component, leader *component) {
	if err := leader.awaitReady(ctx); err != nil {
		return // it has ended once more, or we are leaving
	}
	for _, c := range followers {
		p, err := cp.procs.Find(c.name)
		if err != nil || !cp.isOlder(p, leader.name) {
			continue
		}
		c.renewed.Store(true)
		cp.opts.Log.Info("Restarting a component, because "+leader.name+" was", "component", c.name, "pid", p.PID())
		if err := stopProcess(ctx, p, patience(c.name)); err != nil && ctx.Err() == nil {
			cp.opts.Log.Error(err, "Could not stop a component", "component", c.name)
		}
	}
}

// restart tries to start a component until it succeeds (true) or the context ends (false).
func (cp *ControlPlane) restart(ctx context.Context, c *component, backoff *wait.Backoff, atOnce bool) bool {
	for atOnce || pause(ctx, backoff.Step()) {
		atOnce = false
		err := cp.startComponent(ctx, c)
		if err == nil {
			return true
		}
		cp.opts.Log.Error(err, "Could not start a component, trying again", "component", c.name)
		cp.endings.note(c.name, err)
	}
	return false
}

// pause waits; false when the context ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// awaitReady waits until a component is ready.
func (c *component) awaitReady(ctx context.Context) error {
	if c.ready == nil {
		return nil
	}
	return await(ctx, c.name, c.readyInterval, c.readyTimeout, c.ready)
}

// describeEnd says how a process ended.
func describeEnd(s process.Status) string {
	switch {
	case s.State != process.Exited:
		return "exit status unknown"
	case s.Signal == "SIGKILL":
		return "killed by SIGKILL: by a user, or by the kernel because memory ran out"
	case s.Signal != "":
		return "killed by " + s.Signal
	default:
		return fmt.Sprintf("exit code %d", s.ExitCode)
	}
}

// indent returns the last lines of a log, each cut to a length that can be read. The stacks that a panic prints push
// aside its reason, and only help the authors of the component, who find them in the log.
func indent(text string) string {
	text, _, _ = strings.Cut(text, "\ngoroutine ")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	lines = lines[max(0, len(lines)-10):]
	for i, line := range lines {
		if runes := []rune(line); len(runes) > 300 {
			lines[i] = string(runes[:300]) + " ..."
		}
	}
	return "  " + strings.Join(lines, "\n  ")
}
