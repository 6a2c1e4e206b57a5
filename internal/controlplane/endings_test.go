package controlplane

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/internal/process"
)

func TestWatchEndsWhenOneComponentKeepsEnding(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		before  []string // components that end before the wait
		during  []string // and during it
		wantErr string
	}{
		{name: "nothing ends"},
		{name: "twice is bad luck", during: []string{"a", "a"}},
		{name: "three times is not", during: []string{"a", "a", "a"}, wantErr: "a has failed 3 times: reason"},
		{name: "more often says the same", during: []string{"a", "a", "a", "a", "b", "b", "b"}, wantErr: "a has failed 3 times: reason"},
		{name: "each component counts for itself", during: []string{"a", "b", "a", "b"}},
		{name: "what was before does not count", before: []string{"a", "a", "a", "a"}, during: []string{"a", "a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var e endings
			reason := errors.New("reason")
			for _, name := range tt.before {
				e.note(name, reason)
			}
			ctx, done := e.watch(t.Context())
			for _, name := range tt.during {
				e.note(name, reason)
			}
			err := context.Cause(ctx)
			if got := errorText(err); got != tt.wantErr {
				t.Errorf("cause %q, want %q", got, tt.wantErr)
			}
			if err != nil && !errors.Is(err, reason) {
				t.Error("the cause does not wrap the reason")
			}
			done()
			e.note("a", reason)
			if ctx.Err() == nil {
				t.Error("the context goes on after the wait")
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestAwait(t *testing.T) {
	t.Parallel()
	notYet := errors.New("not yet")
	broken := errors.New("broken")
	readyAfter := func(n int) func(context.Context) error {
		return func(context.Context) error {
			if n--; n < 0 {
				return nil
			}
			return notYet
		}
	}
	for _, tt := range []struct {
		name    string
		cause   error // the context has ended already with this cause
		ready   func(context.Context) error
		timeout time.Duration
		want    string
	}{
		{name: "ready at once", ready: readyAfter(0), timeout: time.Minute},
		{name: "ready after some time", ready: readyAfter(5), timeout: time.Minute},
		{name: "never ready", ready: readyAfter(1 << 30), timeout: 10 * time.Millisecond, want: "it is not ready (not yet): waited 10ms"},
		{name: "a component keeps ending", ready: readyAfter(1 << 30), cause: broken, timeout: time.Minute, want: "it is not ready: broken"},
		{name: "ready wins over an ended context", ready: readyAfter(0), cause: broken, timeout: time.Minute},
		{
			name: "the interrupted question is no answer", timeout: 10 * time.Millisecond, want: "it is not ready (not yet): waited 10ms",
			ready: func() func(context.Context) error {
				asked := false
				return func(ctx context.Context) error {
					if !asked {
						asked = true
						return notYet
					}
					<-ctx.Done()
					return ctx.Err()
				}
			}(),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if tt.cause != nil {
				cancel(tt.cause)
			}
			err := await(ctx, "it", time.Millisecond, tt.timeout, tt.ready)
			if got := errorText(err); got != tt.want {
				t.Errorf("error %q, want %q", got, tt.want)
			}
			if tt.cause != nil && err != nil && !errors.Is(err, tt.cause) {
				t.Error("the error does not wrap the cause")
			}
		})
	}
}

func TestDescribeEnd(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		status process.Status
		want   string
	}{
		{name: "reboot", status: process.Status{State: process.Lost}, want: "exit status unknown"},
		{name: "failed", status: process.Status{State: process.Exited, ExitCode: 2}, want: "exit code 2"},
		{name: "ended by itself", status: process.Status{State: process.Exited}, want: "exit code 0"},
		{name: "stopped", status: process.Status{State: process.Exited, ExitCode: -1, Signal: "SIGTERM"}, want: "killed by SIGTERM"},
		{
			name: "out of memory", status: process.Status{State: process.Exited, ExitCode: -1, Signal: "SIGKILL"},
			want: "killed by SIGKILL: by a user, or by the kernel because memory ran out",
		},
	} {
		if diff := cmp.Diff(tt.want, describeEnd(tt.status)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestIndent(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text, want string }{
		{name: "nothing", text: "", want: "  "},
		{name: "two lines", text: "a\nb\n", want: "  a\n  b"},
		{name: "only the last lines", text: strings.Repeat("line\n", 100) + "last\n", want: strings.Repeat("  line\n", 9) + "  last"},
		{name: "a panic without its stacks", text: "before\npanic: reason\n\ngoroutine 1 [running]:\nmain.main()\n", want: "  before\n  panic: reason"},
		{name: "a long line", text: strings.Repeat("ä", 301), want: "  " + strings.Repeat("ä", 300) + " ..."},
	} {
		if diff := cmp.Diff(tt.want, indent(tt.text)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
