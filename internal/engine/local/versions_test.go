package local_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/engine/local"
)

// hanging returns a program that prints its version after release is called. awaitStart returns as soon as the program runs.
func hanging(t *testing.T) (binary string, awaitStart, release func()) {
	t.Helper()
	dir := t.TempDir()
	binary, started, fifo := filepath.Join(dir, "keelson-kube"), filepath.Join(dir, "started"), filepath.Join(dir, "fifo")
	for _, path := range []string{started, fifo} {
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(t, binary, "#!/bin/sh\necho started >"+started+"\nread line <"+fifo+"\necho kubernetes v1.36.3\n", 0o700)
	awaitStart = func() {
		t.Helper()
		if _, err := os.ReadFile(started); err != nil { // blocks until the program opens it
			t.Fatal(err)
		}
	}
	release = func() {
		t.Helper()
		if err := os.WriteFile(fifo, []byte("go on\n"), 0o600); err != nil { // blocks until the program opens it
			t.Fatal(err)
		}
	}
	return binary, awaitStart, release
}

// observing observes a cluster in the background.
func observing(ctx context.Context, engine *local.Engine) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := engine.Observe(ctx, cluster.Request{Name: "demo", UID: "demo", Spec: v1alpha1.ClusterSpec{}})
		ended <- err
	}()
	return ended
}

func TestProgramsAreAskedForTheirVersionsSideBySide(t *testing.T) {
	slow, awaitStart, release := hanging(t)
	quick := standIn(t, "v1.36.3")
	var binary atomic.Value
	engine := local.New(local.Options{Dir: t.TempDir(), Binary: func() (string, error) { return binary.Load().(string), nil }})
	defer func() { _ = engine.Close() }() // nothing was started

	binary.Store(slow)
	first := observing(t.Context(), engine)
	awaitStart()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := <-observing(canceled, engine); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller whose context has ended: %v", err)
	}
	binary.Store(quick)
	if err := <-observing(t.Context(), engine); err != nil {
		t.Errorf("another program, which answers at once: %v", err)
	}
	release()
	if err := <-first; err != nil {
		t.Errorf("the program that answers late: %v", err)
	}
}

func TestCloseEndsAProgramThatDoesNotTellItsVersion(t *testing.T) {
	slow, awaitStart, _ := hanging(t)
	engine := local.New(local.Options{Dir: t.TempDir(), Binary: func() (string, error) { return slow, nil }})
	ended := observing(t.Context(), engine)
	awaitStart()
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) || !errors.Is(err, cluster.ErrUnavailable) {
		t.Errorf("the observation ended with: %v", err)
	}
}
