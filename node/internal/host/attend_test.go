package host

import (
	"context"
	"errors"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"
)

// fakeChild notes what it is told, and ends if it was made to.
type fakeChild struct {
	ignores              bool // SIGTERM
	signalErr, killError error

	told  []string
	ended chan error
	gone  chan struct{} // closed when it was killed
}

func newFakeChild(c fakeChild) *fakeChild {
	c.ended, c.gone = make(chan error, 2), make(chan struct{})
	return &c
}

func (c *fakeChild) Signal(signal os.Signal) error {
	c.told = append(c.told, signal.String())
	if c.signalErr == nil && !c.ignores {
		c.ended <- nil
	}
	return c.signalErr
}

func (c *fakeChild) Kill() error {
	c.told = append(c.told, "killed")
	if c.killError == nil {
		c.ended <- errors.New("signal: killed")
		close(c.gone)
	}
	return c.killError
}

var (
	errLink = errors.New("there is no link")
	errExit = errors.New("exit status 1")
)

func TestAttendEndsWhatIsNotUp(t *testing.T) {
	for _, test := range []struct {
		name  string
		child fakeChild
		asked bool // to end, while it has not answered; else it cannot be linked
		want  []error
	}{
		{"it is to end before it has answered", fakeChild{}, true, nil},
		{"it is to end and cannot be killed", fakeChild{killError: syscall.EPERM}, true, []error{syscall.EPERM}},
		{"it cannot be linked", fakeChild{}, false, []error{errLink}},
		{"it cannot be linked and has ended", fakeChild{killError: os.ErrProcessDone}, false, []error{errLink}},
		{"it can be neither linked nor killed", fakeChild{killError: syscall.EPERM}, false, []error{errLink, syscall.EPERM}},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			child, over := newFakeChild(test.child), make(chan struct{})
			defer close(over)
			if errors.Is(test.child.killError, os.ErrProcessDone) {
				child.ended <- errExit
			}
			err := attend(ctx, child, child.ended, time.Hour, func() error {
				if test.asked {
					cancel()
					select {
					case <-child.gone:
					case <-over:
					}
				}
				return errLink
			})
			for _, want := range test.want {
				if !errors.Is(err, want) {
					t.Errorf("the error is %v, want %v", err, want)
				}
			}
			if len(test.want) == 0 && err != nil {
				t.Errorf("the error is %v", err)
			}
			if want := []string{"killed"}; !slices.Equal(child.told, want) {
				t.Errorf("it was told %q, want %q", child.told, want)
			}
		})
	}
}

func TestAwaitEnd(t *testing.T) {
	const term = "terminated"
	for _, test := range []struct {
		name  string
		child fakeChild
		asked bool
		ended []error // by itself
		want  string
		told  []string
	}{
		{"asked to end", fakeChild{}, true, nil, "", []string{term}},
		{"it does not heed that", fakeChild{ignores: true}, true, nil, "", []string{term, "killed"}},
		{"it cannot be told", fakeChild{signalErr: syscall.EPERM}, true, nil, "tell the node to end: operation not permitted", []string{term, "killed"}},
		{"it can be neither told nor killed", fakeChild{signalErr: syscall.EPERM, killError: syscall.EPERM}, true, nil,
			"tell the node to end: operation not permitted\nkill the node: operation not permitted", []string{term, "killed"}},
		{"it ends by itself", fakeChild{}, false, []error{errExit}, "the node has ended: exit status 1", nil},
		{"it ends well by itself", fakeChild{}, false, []error{nil}, "the node has ended: no stop was requested", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			child := newFakeChild(test.child)
			for _, err := range test.ended {
				child.ended <- err
			}
			if test.asked {
				cancel()
			}
			waitTimeout := time.Hour
			if test.child.ignores {
				waitTimeout = time.Millisecond
			}
			text := ""
			if err := awaitEnd(ctx, child, child.ended, waitTimeout); err != nil {
				text = err.Error()
			}
			if text != test.want || !slices.Equal(child.told, test.told) {
				t.Errorf("got %q after %q, want %q after %q", text, child.told, test.want, test.told)
			}
		})
	}
}
