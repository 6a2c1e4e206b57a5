// Package instance finds the Keelson of this machine: its data directory, its programs, and what runs of it. The
// commands up, down and status share it.
package instance

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/internal/controlplane"
)

// Flags choose one instance of several on this machine.
type Flags struct {
	// DataDir is the directory that the user named; empty for the default.
	DataDir string
	// Ephemeral chooses the instance whose data goes when it stops.
	Ephemeral bool
}

// AddFlags adds --data-dir and --ephemeral to fs.
func (f *Flags) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&f.DataDir, "data-dir", f.DataDir,
		"`directory` for everything of this control plane (default: keelson in $XDG_DATA_HOME, else ~/.local/share/keelson)")
	fs.BoolVar(&f.Ephemeral, "ephemeral", f.Ephemeral,
		"the control plane in a temporary directory: faster, not safe against a crash of the machine, removed when it stops")
}

// Dir returns the data directory that the flags mean.
//
// Without --data-dir an ephemeral instance has a fixed place too, so that down and status find what a crash has left.
func (f *Flags) Dir() (string, error) {
	if f.DataDir != "" {
		return filepath.Abs(f.DataDir)
	}
	if f.Ephemeral {
		return filepath.Join(os.TempDir(), fmt.Sprintf("keelson-ephemeral-%d", os.Getuid())), nil
	}
	// XDG Base Directory Specification: a relative path is to be ignored.
	if base := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "keelson"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no home directory for the data (%w): name a place with --data-dir", err)
	}
	return filepath.Join(home, ".local", "share", "keelson"), nil
}

// Secure creates a data directory and makes sure that it is ours alone: in a shared temporary directory somebody else
// may have made it first.
func Secure(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create the data directory: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(stat.Uid) != os.Getuid() {
		return fmt.Errorf("the data directory %s belongs to somebody else: name another with --data-dir", dir)
	}
	if info.Mode().Perm()&0o077 != 0 {
		if err := os.Chmod(dir, 0o700); err != nil {
			return fmt.Errorf("close the data directory to others: %w", err)
		}
	}
	return nil
}

// KubeBinary returns the path of keelson-kube, the program with the Kubernetes components: beside this program, else
// from PATH. $KEELSON_KUBE overrides both.
func KubeBinary() (string, error) {
	if path := os.Getenv("KEELSON_KUBE"); path != "" {
		return filepath.Abs(path)
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return "", err
	}
	beside := filepath.Join(filepath.Dir(self), "keelson-kube")
	if _, err := os.Stat(beside); err == nil {
		return beside, nil
	}
	path, err := exec.LookPath("keelson-kube")
	if err != nil {
		return "", fmt.Errorf("keelson-kube, the program with the Kubernetes components, is neither %s nor in PATH: "+
			"build it with `make build`, or name it in KEELSON_KUBE", beside)
	}
	return filepath.Abs(path)
}

// Describe returns what a person wants to know about an instance, in several lines.
func Describe(r controlplane.Report, now time.Time) string {
	if !r.Exists {
		return fmt.Sprintf("Nothing was ever started in %s.\n", r.Dir)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", headline(r))
	fmt.Fprintf(&b, "  data        %s\n  kubeconfig  %s\n  server      %s\n", r.Dir, r.Kubeconfig, r.Server)
	if r.APIError != "" {
		fmt.Fprintf(&b, "  API error   %s\n", r.APIError)
	}
	if r.ManagerPID == 0 && !r.Running() {
		return b.String() // how the components ended is of no interest then
	}
	b.WriteString("\n")
	for _, c := range r.Components {
		state := c.State
		detail := c.Ended
		if detail == "" {
			detail = fmt.Sprintf("pid %d, up %s", c.PID, now.Sub(c.StartedAt).Round(time.Second))
		}
		fmt.Fprintf(&b, "  %-24s %-8s %s\n", c.Name, state, detail)
	}
	return b.String()
}

// headline sums an instance up in one line, with what to do where something is wrong.
func headline(r controlplane.Report) string {
	switch {
	case r.ManagerPID != 0 && r.APIReady:
		return fmt.Sprintf("Keelson runs (pid %d).", r.ManagerPID)
	case r.ManagerPID != 0 && r.Running():
		return fmt.Sprintf("Keelson runs (pid %d), but its API is not ready; see the logs in %s.", r.ManagerPID, filepath.Join(r.Dir, "logs"))
	case r.ManagerPID != 0:
		return fmt.Sprintf("Keelson starts or stops (pid %d).", r.ManagerPID)
	case r.Running():
		return "Keelson itself does not run, but it has left components behind. `keelson up` goes on with them, `keelson down` stops them."
	default:
		return "Keelson is stopped. `keelson up` starts it, with all that was in it."
	}
}

// ErrGone is returned by SignalManager when the program is gone already.
var ErrGone = errors.New("gone already")

// SignalManager asks the program that looks after an instance to stop.
func SignalManager(pid int) error {
	err := syscall.Kill(pid, syscall.SIGTERM)
	if errors.Is(err, syscall.ESRCH) {
		return ErrGone
	}
	return err
}
