package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

const (
	killSignal = syscall.SIGKILL

	defaultPoliteTimeout = 10 * time.Second
	defaultTermTimeout   = 10 * time.Second
	defaultKillTimeout   = 5 * time.Second
)

// StopOptions configures the stop of a process: Polite, then TermSignal, then SIGKILL, each with its own
// timeout.
type StopOptions struct {
	// Polite asks the process to end in its own protocol, such as by a QMP command; nil skips this stage. After
	// an error, the next stage follows at once.
	Polite        func(ctx context.Context) error
	PoliteTimeout time.Duration // from calling Polite until the process is gone; 0 means 10 s
	TermSignal    os.Signal     // nil means SIGTERM; must be a syscall.Signal
	TermTimeout   time.Duration // from the signal until the process is gone; 0 means 10 s
	KillTimeout   time.Duration // from SIGKILL until the process is gone; 0 means 5 s
}

// Stop ends the process and returns nil when it is gone, even if it was gone before. It returns early with an error
// if ctx ends; the process then continues, or ends after the signals it has received.
func (p *Process) Stop(ctx context.Context, o StopOptions) error {
	if p.ended() {
		return nil
	}
	term, ok := o.TermSignal.(syscall.Signal)
	if !ok {
		if o.TermSignal != nil {
			return fmt.Errorf("stop process %s: %v is no signal of this system", p.ID(), o.TermSignal)
		}
		term = syscall.SIGTERM
	}
	if o.Polite != nil {
		step("stop: begun")
		gone, err := p.stopGracefully(ctx, o.Polite, orDefault(o.PoliteTimeout, defaultPoliteTimeout))
		step("stop: asked")
		if gone || err != nil {
			return err
		}
	}
	for _, stage := range []struct {
		signals []syscall.Signal
		timeout time.Duration
	}{
		// A suspended process receives SIGTERM only when it is continued.
		{[]syscall.Signal{term, syscall.SIGCONT}, orDefault(o.TermTimeout, defaultTermTimeout)},
		{[]syscall.Signal{killSignal}, orDefault(o.KillTimeout, defaultKillTimeout)},
	} {
		step("stop: before " + signalName(stage.signals[0]))
		gone, err := p.signalAndWait(ctx, stage.signals, stage.timeout)
		step("stop: after " + signalName(stage.signals[0]))
		if gone || err != nil {
			return err
		}
	}
	return fmt.Errorf("stop process %s: pid %d is still there %s after SIGKILL; it probably hangs in the kernel, see /proc/%d/status",
		p.ID(), p.PID(), orDefault(o.KillTimeout, defaultKillTimeout), p.PID())
}

// ask calls polite and waits for the end of the process. It is not an error if polite fails or times out.
func (p *Process) stopGracefully(ctx context.Context, polite func(context.Context) error, timeout time.Duration) (gone bool, err error) {
	politeCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	asked := make(chan error, 1)
	go func() { asked <- polite(politeCtx) }()
	for {
		select {
		case <-p.done:
			return true, nil
		case err := <-asked:
			if err != nil && ctx.Err() == nil {
				return false, nil
			}
			asked = nil
		case <-politeCtx.Done():
			return false, p.interrupted(ctx)
		}
	}
}

// signalAndWait sends the signals and waits for the end of the process.
func (p *Process) signalAndWait(ctx context.Context, signals []syscall.Signal, timeout time.Duration) (gone bool, err error) {
	for _, sig := range signals {
		if err := p.Signal(sig); err != nil && !errors.Is(err, ErrNotFound) {
			return false, err
		}
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-p.done:
		return true, nil
	case <-timer.C:
		return false, nil
	case <-ctx.Done():
		return false, p.interrupted(ctx)
	}
}

func (p *Process) interrupted(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("stop process %s: pid %d is still there: %w", p.ID(), p.PID(), ctx.Err())
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d <= 0 {
		return otherwise
	}
	return d
}
