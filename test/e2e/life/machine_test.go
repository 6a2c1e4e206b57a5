// Package life has the transcripts of keelson up, down and status: the use of a control plane on
// one machine, also by an impatient user and on an unreliable machine.
package life

import (
	"encoding/json"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/process"
	"github.com/keelson-dev/keelson/internal/testing/signals"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// machine is a user's account without any files of keelson.
type machine struct {
	transcript.Shell
	home string
}

// newMachine returns an account. Its nodes are simulated: the tests have no registry for the images of a real node. At the end
// of the test no processes may be left.
func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{home: t.TempDir()}
	m.Env = map[string]string{"HOME": m.home, "TMPDIR": m.path("tmp"), "KEELSON_NODE": m.path("nowhere")}
	if err := os.Mkdir(m.path("tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			m.nothingIsLeft(t)
			return
		}
		m.Run(t, "keelson", "down")
		m.Run(t, "keelson", "down", "--ephemeral")
	})
	return m
}

func (m *machine) path(elem ...string) string {
	return filepath.Join(append([]string{m.home}, elem...)...)
}

// config returns the path of a configuration with these fields.
func (m *machine) config(t *testing.T, fields string) string {
	t.Helper()
	path := m.path("keelson.yaml")
	if err := os.WriteFile(path, []byte("apiVersion: config.keelson.dev/v1alpha1\nkind: KeelsonConfiguration\n"+fields+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// data returns keelson's default data directory.
func (m *machine) data() string { return m.path(".local", "share", "keelson") }

// withCluster returns a shell with KUBECONFIG set, as keelson up recommends.
func (m *machine) withCluster() transcript.Shell {
	return transcript.Shell{Env: map[string]string{"HOME": m.home, "KUBECONFIG": filepath.Join(m.data(), "kubeconfig")}}
}

// status returns the JSON report of keelson status.
func (m *machine) status(t *testing.T, flags ...string) controlplane.Report {
	t.Helper()
	result := m.Run(transcript.Quietly(t), append([]string{"keelson", "status", "--output", "json"}, flags...)...)
	var report controlplane.Report
	if err := json.Unmarshal([]byte(result.Stdout), &report); err != nil {
		t.Fatalf("keelson status --output json: %v", err)
	}
	if healthy := report.ManagerPID != 0 && report.APIReady; healthy != (result.Code == 0) {
		t.Errorf("keelson status: exit code %d, but the report is %+v", result.Code, report)
	}
	return report
}

// nothingIsLeft fails the test if a process uses this account.
func (m *machine) nothingIsLeft(t *testing.T) {
	t.Helper()
	if left := transcript.Left(m.home); len(left) > 0 {
		t.Errorf("leaked processes:\n%s", strings.Join(left, "\n"))
	}
}

// expectNoListener fails the test if the API of a report is still reachable.
func expectNoListener(t *testing.T, report controlplane.Report) {
	t.Helper()
	address := strings.TrimPrefix(report.Server, "https://")
	if conn, err := net.Dial("tcp", address); err == nil {
		_ = conn.Close()
		t.Errorf("a process still listens on %s", address)
	}
}

// isClosedToOthers fails the test if other users can access a file or directory below path.
func isClosedToOthers(t *testing.T, path string) {
	t.Helper()
	err := filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeSocket != 0 { // a socket is protected by its directory
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s is accessible to others: %s", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// kill kills a process with SIGKILL and waits for its end.
func kill(t *testing.T, pid int) {
	t.Helper()
	t.Logf("$ kill -9 %d", pid)
	signals.Send(t, pid, syscall.SIGKILL)
	transcript.Eventually(t, "it has ended", func() bool { return process.IsGone(pid) })
}
