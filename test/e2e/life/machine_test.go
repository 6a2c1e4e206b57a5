// Package life has the transcripts of keelson up, down and status: what a user does with a control plane on one machine,
// and what becomes of it when the user is impatient, or the machine is not kind.
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

	"github.com/keelson-dev/keelson/internal/cli/instance"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/testing/signals"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// machine is a user's account, in which nothing of keelson is there yet.
type machine struct {
	transcript.Shell
	home string
}

// newMachine returns an account in which nothing may be left running when the test ends.
func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{home: t.TempDir()}
	m.Env = map[string]string{"HOME": m.home, "TMPDIR": m.path("tmp")}
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

// data is where keelson keeps everything by default.
func (m *machine) data() string { return m.path(".local", "share", "keelson") }

// withCluster returns the shell of a user who has followed the advice of keelson up and set KUBECONFIG.
func (m *machine) withCluster() transcript.Shell {
	return transcript.Shell{Env: map[string]string{"HOME": m.home, "KUBECONFIG": filepath.Join(m.data(), "kubeconfig")}}
}

// status returns what keelson status reports for programs, whatever it is.
func (m *machine) status(t *testing.T, flags ...string) controlplane.Report {
	t.Helper()
	result := m.Run(transcript.Quietly(t), append([]string{"keelson", "status", "--output", "json"}, flags...)...)
	var report controlplane.Report
	if err := json.Unmarshal([]byte(result.Stdout), &report); err != nil {
		t.Fatalf("keelson status --output json: %v", err)
	}
	if healthy := report.ManagerPID != 0 && report.APIReady; healthy != (result.Code == 0) {
		t.Errorf("keelson status: exit code %d, but it says %+v", result.Code, report)
	}
	return report
}

// nothingIsLeft fails the test if any process has to do with this account.
func (m *machine) nothingIsLeft(t *testing.T) {
	t.Helper()
	if left := transcript.Left(m.home); len(left) > 0 {
		t.Errorf("processes are left:\n%s", strings.Join(left, "\n"))
	}
}

// nobodyListens fails the test if the API of a report can still be reached.
func nobodyListens(t *testing.T, report controlplane.Report) {
	t.Helper()
	address := strings.TrimPrefix(report.Server, "https://")
	if conn, err := net.Dial("tcp", address); err == nil {
		_ = conn.Close()
		t.Errorf("somebody still listens on %s", address)
	}
}

// isClosedToOthers fails the test if anybody else may look into a file or directory below path.
func isClosedToOthers(t *testing.T, path string) {
	t.Helper()
	err := filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeSocket != 0 { // a socket is as closed as its directory
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s is open to others: %s", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// kill ends a process as nothing can be prepared for.
func kill(t *testing.T, pid int) {
	t.Helper()
	t.Logf("$ kill -9 %d", pid)
	signals.Send(t, pid, syscall.SIGKILL)
	transcript.Eventually(t, "it is gone", func() bool { return instance.IsGone(pid) })
}
