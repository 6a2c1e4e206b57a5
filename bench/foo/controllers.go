package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/keelson-dev/keelson/bench/internal/program"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// startManager starts the manager with the controller of Foos.
func (b *bench) startManager(ctx context.Context) (*program.Manager, error) {
	var flags []string
	if b.options.Threads > 0 {
		flags = append(flags, "--threads="+strconv.Itoa(b.options.Threads))
	}
	return program.StartManager(ctx, b.binary, b.cluster.Kubeconfig, filepath.Join(b.cluster.Dir, "manager.log"), "foo", flags...)
}

// peerModule is what runs beside us: the controller that Foos are from.
const peerModule = "k8s.io/sample-controller"

// buildPeer builds sample-controller from the module that bench/peers names, and returns its version.
func (b *bench) buildPeer(ctx context.Context) (path, version string, err error) {
	keelson, err := env.Binary("keelson")
	if err != nil {
		return "", "", err
	}
	module := filepath.Join(filepath.Dir(keelson), "..", "bench", "peers")
	path = filepath.Join(b.cluster.Dir, "sample-controller")
	build := exec.CommandContext(ctx, "go", "-C", module, "build", "-o", path, peerModule)
	if output, err := build.CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("build %s (--peer-foos=0 leaves it out): %w: %s", peerModule, err, output)
	}
	list := exec.CommandContext(ctx, "go", "-C", module, "list", "-m", "-f", "{{.Version}}", peerModule)
	output, err := list.Output()
	if err != nil {
		return "", "", fmt.Errorf("find the version of %s: %w", peerModule, err)
	}
	return path, strings.TrimSpace(string(output)), nil
}

// startPeer starts sample-controller as it is shipped: two workers, and the throttle that clients have by default.
func (b *bench) startPeer(ctx context.Context, path string) (*program.Program, error) {
	isReady := func(line string) bool { return strings.Contains(line, "Started workers") }
	return program.Start(ctx, "sample-controller", filepath.Join(b.cluster.Dir, "peer.log"), path,
		[]string{"-kubeconfig=" + b.cluster.Kubeconfig}, isReady)
}
