package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"
)

// politeTimeout is how long the part inside may take to end after SIGTERM. It gives kubelet and kube-proxy 5 s, then
// containers 15 s and containerd 5 s; our caller waits 30 s, and we have to clean up after that.
const politeTimeout = 27 * time.Second

// child is the part inside, as its parent has it.
type child interface {
	Signal(os.Signal) error
	Kill() error
}

// attend serves the part inside and returns when that has ended, which it does at the latest when the context does:
// with SIGTERM and waitTimeout if it has been served, else at once, for nothing runs in it yet. The channel
// has how it ended. Serve must return when it has ended.
func attend(ctx context.Context, inside child, ended <-chan error, waitTimeout time.Duration, serve func() error) error {
	served := make(chan error, 1)
	go func() { served <- serve() }()
	select {
	case err := <-served:
		if err != nil {
			return errors.Join(err, kill(inside, ended))
		}
	case <-ctx.Done():
		slog.Info("Stopping the node, which is not up yet")
		if err := kill(inside, ended); err != nil {
			return err
		}
		if err := <-served; err != nil {
			slog.Debug("Serving the node was interrupted", "error", err.Error())
		}
		return nil
	}
	return awaitEnd(ctx, inside, ended, waitTimeout)
}

// awaitEnd waits for the end of the part inside, which the end of the context brings about.
func awaitEnd(ctx context.Context, inside child, ended <-chan error, waitTimeout time.Duration) error {
	select {
	case err := <-ended:
		return fmt.Errorf("the node has ended: %w", orUnexpected(err))
	case <-ctx.Done():
	}
	slog.Info("Stopping the node")
	if err := inside.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return errors.Join(fmt.Errorf("tell the node to end: %w", err), kill(inside, ended))
	}
	timer := time.NewTimer(waitTimeout)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		slog.Error("The node did not end after SIGTERM and is killed", "waited", waitTimeout.String())
		return kill(inside, ended)
	}
}

// kill ends the part inside, and with it the kernel ends all that runs there. It returns when all of that is gone, or,
// with an error, when it cannot be killed: then the kernel does so when this process ends.
func kill(inside child, ended <-chan error) error {
	if err := inside.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill the node: %w", err)
	}
	if err := <-ended; err != nil {
		slog.Debug("The node was killed", "ended", err.Error())
	}
	return nil
}

// orUnexpected returns err, or an error for a node that has ended without one although it was not stopped.
func orUnexpected(err error) error {
	if err == nil {
		return errors.New("no stop was requested")
	}
	return err
}
