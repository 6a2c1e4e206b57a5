package program

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strings"

	"github.com/keelson-dev/keelson/bench/internal/measure"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// Manager is a running `keelson manager`.
type Manager struct {
	*Program
	metrics string // URL
}

// StartManager starts a manager with one controller as a user would, on ports that are free. The binary is keelson; the
// log file gets what it writes; extra are more of its flags.
func StartManager(ctx context.Context, binary, kubeconfig, log, controller string, extra ...string) (*Manager, error) {
	args := append([]string{
		"manager", "--kubeconfig=" + kubeconfig, "--controllers=" + controller, "--logging-format=json",
		"--health-probe-bind-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0",
	}, extra...)
	m := &Manager{}
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
	if m.Program, err = Start(ctx, "keelson manager", log, binary, args, isReady); err != nil {
		return nil, err
	}
	return m, nil
}

// Scrape reads the metrics of the manager.
func (m *Manager) Scrape(ctx context.Context) (measure.Metrics, error) {
	return measure.Scrape(ctx, http.DefaultClient, m.metrics)
}

// Keelson returns the path of the program that is measured, which is bin/keelson if path is empty, and what it says its
// version is.
func Keelson(ctx context.Context, path string) (binary, version string, err error) {
	if path == "" {
		if path, err = env.Binary("keelson"); err != nil {
			return "", "", err
		}
	}
	output, err := exec.CommandContext(ctx, path, "version", "-o", "json").Output()
	if err != nil {
		return "", "", fmt.Errorf("ask %s for its version: %w", path, err)
	}
	var build struct{ Keelson string }
	if err := json.Unmarshal(output, &build); err != nil {
		return "", "", fmt.Errorf("the version of %s: %w", path, err)
	}
	return path, build.Keelson, nil
}

// ComponentVersions asks keelson-kube what is built in.
func ComponentVersions(ctx context.Context, binary string) (string, error) {
	output, err := exec.CommandContext(ctx, binary, "version").Output()
	if err != nil {
		return "", fmt.Errorf("ask %s for its versions: %w", binary, err)
	}
	return strings.ReplaceAll(strings.TrimSpace(string(output)), "\n", ", "), nil
}
