// Package program runs what benchmarks measure: controllers as processes of their own.
package program

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const (
	startTimeout = 30 * time.Second
	stopTimeout  = 35 * time.Second
)

// Program is a controller that runs as a process of its own.
type Program struct {
	// Name is what results call it.
	Name string

	cmd     *exec.Cmd
	log     string
	done    chan struct{} // closed when it has ended
	stopped bool
}

// Start starts the program at path, which writes its logs to stderr, and returns when isReady has been true for a line
// of them. They also go to the end of the file log.
func Start(ctx context.Context, name, log, path string, args []string, isReady func(line string) bool) (*Program, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	p := &Program{Name: name, cmd: exec.CommandContext(ctx, path, args...), log: log, done: make(chan struct{})}
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = stopTimeout
	reader, writer := io.Pipe()
	p.cmd.Stderr = io.MultiWriter(file, writer)
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), file.Close())
	}
	go func() {
		_ = p.cmd.Wait() // whether it should have ended decides whether that is an error, see ended
		_ = writer.Close()
		_ = file.Close() // only a log
		close(p.done)
	}()
	ready := make(chan struct{})
	go func() {
		lines := bufio.NewScanner(reader)
		for waiting := true; lines.Scan(); {
			if waiting && isReady(lines.Text()) {
				waiting = false
				close(ready)
			}
		}
		_, _ = io.Copy(io.Discard, reader) // after a line that is too long
	}()
	select {
	case <-ready:
		return p, nil
	case <-p.done:
		return nil, p.ended()
	case <-time.After(startTimeout):
		err = fmt.Errorf("%s is not ready after %s: %s", name, startTimeout, p.tail())
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return nil, errors.Join(err, p.Stop())
}

// PID returns the id of its process.
func (p *Program) PID() int { return p.cmd.Process.Pid }

// During returns a context that ends with ctx, and when the program ends.
func (p *Program) During(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-ctx.Done():
		case <-p.done:
			cancel(p.ended())
		}
	}()
	return ctx, func() { cancel(nil) }
}

// Stop tells the program to end and waits until it has. A program that has been stopped already is no error.
func (p *Program) Stop() error {
	if p.stopped {
		return nil
	}
	p.stopped = true
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.Name, err)
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(stopTimeout):
		err := p.cmd.Process.Kill()
		<-p.done
		return errors.Join(fmt.Errorf("%s had to be killed, %s after SIGTERM", p.Name, stopTimeout), err)
	}
}

// Kill ends the program at once, as a crash does, and waits until it is gone.
func (p *Program) Kill() error {
	p.stopped = true
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.Name, err)
	}
	<-p.done
	return nil
}

func (p *Program) ended() error {
	return fmt.Errorf("%s has ended by itself (%s): %s", p.Name, p.cmd.ProcessState, p.tail())
}

// tail returns the end of the log.
func (p *Program) tail() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	const most = 2000
	return strings.TrimSpace(string(data[max(0, len(data)-most):]))
}
