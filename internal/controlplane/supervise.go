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

// component is a supervised process of the control plane.
type component struct {
	name    string
	binary  string                          // empty: keelson-kube, with the name of the component as its first argument
	kube    string                          // the keelson-kube to use; empty: that of the control plane
	args    func() []string                 // the command line, evaluated before each start
	later   []string                        // more arguments; a running process without them is not replaced
	once    func() []string                 // arguments for one start, if set; they do not matter to a running process
	inputs  []string                        // files that are read only at the start: a change requires a restart
	follows string                          // the component after whose restart this one must be restarted, if any
	prepare func(ctx context.Context) error // runs before each start, if set

	// ready reports whether the component can be used; nil if no start waits for it.
	ready         func(ctx context.Context) error
	readyInterval time.Duration
	readyTimeout  time.Duration

	// restarted is called after a restart of the component. It must not block.
	restarted func(ctx context.Context)

	end     context.CancelFunc // ends the supervision of this component; set by launch
	process *process.Process   // belongs to launch, then to supervise
	absent  bool               // was not running before launch; set by launch
	started bool               // by us, not adopted; guarded by ControlPlane.mu
	renewed atomic.Bool        // we stopped it to restart it
}

// A crashed component is restarted at once, then with a backoff of up to ten seconds. The backoff is reset after a
// run of a minute.
var restartBackoff = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 7, Cap: 10 * time.Second}

const goodRun = time.Minute

// newBackoff returns the initial backoff of a component.
func (o Options) newBackoff() wait.Backoff {
	backoff := restartBackoff
	if o.RestartPause > 0 {
		backoff.Duration, backoff.Cap = min(backoff.Duration, o.RestartPause), o.RestartPause
	}
	return backoff
}

// errLeaving means that no component is started because the control plane is being stopped or left.
var errLeaving = errors.New("the control plane is being stopped")

// launch starts a component, or adopts its running process, and supervises it. It does nothing for a supervised
// component.
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
	supervision, end := context.WithCancel(cp.supervision)
	c.end = end
	cp.wg.Add(1) // Stop waits for this, and then stops the component
	cp.mu.Unlock()
	defer cp.wg.Done()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(supervision, cancel)()
	if err := cp.takeOver(ctx, c); err != nil {
		end()
		cp.mu.Lock()
		defer cp.mu.Unlock()
		delete(cp.launched, c.name)
		return err
	}
	cp.wg.Go(func() { cp.supervise(supervision, c) })
	return nil
}

// takeOver adopts the process of an earlier run if its command line is up to date; otherwise it replaces the process.
func (cp *ControlPlane) takeOver(ctx context.Context, c *component) error {
	p, why, err := cp.running(c)
	switch {
	case err != nil:
		return err
	case p == nil:
		c.absent = true
		return cp.startComponent(ctx, c)
	case why == "":
		c.process = p
		return nil
	}
	cp.opts.Log.Info("Restarting a component, because "+why, "component", c.name, "pid", p.PID())
	if c.name == nameAPIServer {
		cp.opts.Replacing()
	}
	if err := stopProcess(ctx, p, waitTimeout(c.name)); err != nil {
		return err
	}
	return cp.startComponent(ctx, c)
}

// running returns the running process of an earlier run, and why it must be replaced; that is empty if it can be adopted. The process is
// nil if there is none.
func (cp *ControlPlane) running(c *component) (p *process.Process, why string, err error) {
	p, err = cp.procs.Find(c.name)
	if errors.Is(err, process.ErrNotFound) {
		return nil, "", nil
	}
	if err != nil || p.Status().State != process.Running {
		return nil, "", err
	}
	hash, err := cp.commandHash(c)
	if err != nil {
		return nil, "", err
	}
	cp.mu.Lock()
	defer cp.mu.Unlock()
	switch {
	case cp.state.Commands[c.name] != hash:
		why = "its flags, its keys or its binary have changed"
	case c.follows != "" && cp.isOlder(p, c.follows):
		why = c.follows + " was restarted"
	}
	return p, why, nil
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
	var once []string
	if c.once != nil {
		once = c.once()
	}
	if c.binary != "" {
		return c.binary, slices.Concat(c.args(), c.later, once)
	}
	return cmp.Or(c.kube, cp.opts.Binary), slices.Concat([]string{c.name}, c.args(), c.later, once)
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

// commandHash returns a hash of the command line of a component, without component.later, and of the files that it reads only
// once. It changes when the component must be restarted.
func (cp *ControlPlane) commandHash(c *component) (string, error) {
	sum := sha256.New()
	for _, arg := range slices.Concat([]string{cmp.Or(c.binary, c.kube, cp.opts.Binary)}, c.args(), cp.opts.Env) {
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

// supervise restarts a component whenever it ends, until the context ends.
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
			return // it was stopped
		}
		status := c.process.Status()
		log := cp.dir.log(c.name)
		cp.opts.Changed()
		cp.opts.Log.Info("A component has ended, restarting it", "component", c.name, "ended", describeEnd(status), "log", log)
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

// followers returns the components that follow another one. Components that are launched later need no restart.
func (cp *ControlPlane) followers(name string) []*component {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Values(cp.launched)), func(c *component) bool { return c.follows != name })
}

// renew stops the followers of a restarted component once it is ready, so that they are restarted, too.
func (cp *ControlPlane) renew(ctx context.Context, followers []*component, leader *component) {
	if err := leader.awaitReady(ctx); err != nil {
		return // it has ended again, or the control plane is being left
	}
	for _, c := range followers {
		p, err := cp.procs.Find(c.name)
		if err != nil || !cp.isOlder(p, leader.name) {
			continue
		}
		c.renewed.Store(true)
		cp.opts.Log.Info("Restarting a component, because "+leader.name+" was", "component", c.name, "pid", p.PID())
		if err := stopProcess(ctx, p, waitTimeout(c.name)); err != nil && ctx.Err() == nil {
			cp.opts.Log.Error(err, "Failed to stop a component", "component", c.name)
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
		cp.opts.Log.Error(err, "Failed to start a component, will retry", "component", c.name)
		cp.endings.note(c.name, err)
	}
	return false
}

// pause waits, and returns false if the context ended first.
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

// describeEnd describes the end of a process.
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

// indent returns the last lines of a log, truncated to a readable length. It omits the stack traces of a panic,
// which would hide its reason; they are in the log.
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
