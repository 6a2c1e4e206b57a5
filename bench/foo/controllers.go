package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/keelson-dev/keelson/bench/internal/measure"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// manager is a running `keelson manager`.
type manager struct {
	*program
	metrics string // URL
}

// startManager starts the manager as a user would, on ports that are free.
func (b *bench) startManager(ctx context.Context) (*manager, error) {
	args := []string{
		"manager", "--kubeconfig=" + b.cluster.kubeconfig, "--controllers=foo", "--logging-format=json",
		"--health-probe-bind-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0",
	}
	if b.options.Threads > 0 {
		args = append(args, "--threads="+strconv.Itoa(b.options.Threads))
	}
	m := &manager{}
	isReady := func(line string) bool {
		var entry struct{ Msg, Metrics string }
		if json.Unmarshal([]byte(line), &entry) != nil {
			return false
		}
		if entry.Metrics != "" {
			m.metrics = "http://" + entry.Metrics + "/metrics"
		}
		return entry.Msg == "Manager is ready"
	}
	var err error
	m.program, err = startProgram(ctx, "keelson manager", filepath.Join(b.cluster.dir, "manager.log"), b.binary, args, isReady)
	return m, err
}

// scrape reads the metrics of the manager.
func (m *manager) scrape(ctx context.Context) (measure.Metrics, error) {
	return measure.Scrape(ctx, http.DefaultClient, m.metrics)
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
	path = filepath.Join(b.cluster.dir, "sample-controller")
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
func (b *bench) startPeer(ctx context.Context, path string) (*program, error) {
	isReady := func(line string) bool { return strings.Contains(line, "Started workers") }
	return startProgram(ctx, "sample-controller", filepath.Join(b.cluster.dir, "peer.log"), path,
		[]string{"-kubeconfig=" + b.cluster.kubeconfig}, isReady)
}
