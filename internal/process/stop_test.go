package process

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestStop(t *testing.T) {
	ignoreTerm := `trap "" TERM; echo ready; while :; do sleep 0.05; done`
	for _, test := range []struct {
		name     string
		script   string
		options  func(p *Process) StopOptions
		wantCode int
		wantSig  string
	}{
		{
			name:   "a polite request is enough",
			script: `trap "exit 5" USR1; echo ready; while :; do sleep 0.05; done`,
			options: func(p *Process) StopOptions {
				return StopOptions{Polite: func(context.Context) error { return p.Signal(syscall.SIGUSR1) }, PoliteTimeout: waitTimeout}
			},
			wantCode: 5,
		},
		{
			name:   "a polite request fails: SIGTERM at once",
			script: `echo ready; exec sleep 600`,
			options: func(*Process) StopOptions {
				return StopOptions{Polite: func(context.Context) error { return errors.New("socket gone") }, PoliteTimeout: time.Hour}
			},
			wantCode: -1, wantSig: "SIGTERM",
		},
		{
			name:   "a polite request hangs: SIGTERM after its deadline",
			script: `echo ready; exec sleep 600`,
			options: func(*Process) StopOptions {
				return StopOptions{Polite: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, PoliteTimeout: 20 * time.Millisecond}
			},
			wantCode: -1, wantSig: "SIGTERM",
		},
		{
			name:   "another signal instead of SIGTERM",
			script: `echo ready; exec sleep 600`,
			options: func(*Process) StopOptions {
				return StopOptions{TermSignal: syscall.SIGINT}
			},
			wantCode: -1, wantSig: "SIGINT",
		},
		{
			name:     "SIGTERM is ignored: SIGKILL after its deadline",
			script:   ignoreTerm,
			options:  func(*Process) StopOptions { return StopOptions{TermTimeout: 50 * time.Millisecond} },
			wantCode: -1, wantSig: "SIGKILL",
		},
		{
			name:   "a process stopped by SIGSTOP gets its SIGTERM",
			script: `echo ready; exec sleep 600`,
			options: func(p *Process) StopOptions {
				return StopOptions{Polite: func(context.Context) error { return p.Signal(syscall.SIGSTOP) }, PoliteTimeout: 20 * time.Millisecond}
			},
			wantCode: -1, wantSig: "SIGTERM",
		},
		{
			name:   "a process stopped by SIGSTOP that ignores SIGTERM is killed",
			script: ignoreTerm,
			options: func(p *Process) StopOptions {
				return StopOptions{
					Polite:        func(context.Context) error { return p.Signal(syscall.SIGSTOP) },
					PoliteTimeout: 20 * time.Millisecond, TermTimeout: 20 * time.Millisecond,
				}
			},
			wantCode: -1, wantSig: "SIGKILL",
		},
	} {
		for _, found := range []bool{false, true} {
			name := test.name + ", started by us"
			if found {
				name = test.name + ", found again"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				id := newID()
				d := open(t, newDir(t))
				p := start(t, d, script(id, test.script))
				eventually(t, "ready", func() bool { return p.Status().LogTail == "ready\n" })
				if found {
					d = reopen(t, d)
					p = find(t, d, id)
				}
				if err := p.Stop(t.Context(), test.options(p)); err != nil {
					t.Fatal(err)
				}
				want := Status{ID: id, State: Exited, ExitCode: test.wantCode, Signal: test.wantSig, LogTail: "ready\n"}
				if diff := cmp.Diff(want, p.Status(), ignoreTimes); diff != "" {
					t.Errorf("status (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestStopGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	d := open(t, newDir(t))
	p := start(t, d, script(newID(), `trap "" TERM; echo ready; while :; do sleep 0.05; done`))
	eventually(t, "ready", func() bool { return p.Status().LogTail == "ready\n" })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := p.Stop(ctx, StopOptions{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stop: %v", err)
	}
	if got := p.Status().State; got != Running {
		t.Errorf("state %s", got)
	}
}
