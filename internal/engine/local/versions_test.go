package local_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/engine/local"
)

// hanging returns a program that prints its version when release is called. release returns only after somebody has started
// the program.
func hanging(t *testing.T) (binary string, release func()) {
	t.Helper()
	dir := t.TempDir()
	binary, fifo := filepath.Join(dir, "keelson-kube"), filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, binary, "#!/bin/sh\nread line <"+fifo+"\necho Kubernetes v1.36.3\n", 0o700)
	return binary, func() {
		t.Helper()
		if err := os.WriteFile(fifo, []byte("go on\n"), 0o600); err != nil { // waits for a reader
			t.Fatal(err)
		}
	}
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
	slow, release := hanging(t)
	quick := standIn(t, "v1.36.3")
	binaries := make(chan string, 4)
	engine := local.New(local.Options{Dir: t.TempDir(), Binary: func() (string, error) { return <-binaries, nil }})
	defer func() { _ = engine.Close() }() // nothing was started

	binaries <- slow
	first := observing(t.Context(), engine)
	impatient, cancel := context.WithCancel(t.Context())
	binaries <- slow
	second := observing(impatient, engine)
	cancel()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Errorf("a caller whose context has ended: %v", err)
	}
	binaries <- quick
	if err := <-observing(t.Context(), engine); err != nil {
		t.Errorf("another program, which answers at once: %v", err)
	}
	release()
	if err := <-first; err != nil {
		t.Errorf("the program that answers late: %v", err)
	}
}

func TestCloseEndsAProgramThatDoesNotTellItsVersion(t *testing.T) {
	slow, _ := hanging(t)
	engine := local.New(local.Options{Dir: t.TempDir(), Binary: func() (string, error) { return slow, nil }})
	ended := observing(t.Context(), engine)
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) || !errors.Is(err, cluster.ErrUnavailable) {
		t.Errorf("the observation ended with: %v", err)
	}
}
