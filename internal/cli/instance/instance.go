// Package instance finds the Keelson of this machine: its data directory, its programs, and what runs of it. The
// commands up, down and status share it.
package instance

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/process"
)

// KubeBinary returns the path of keelson-kube, the program with the Kubernetes components: beside this program, else
// from PATH. $KEELSON_KUBE overrides both.
func KubeBinary() (string, error) {
	const what = "keelson-kube, the program with the Kubernetes components"
	if path := os.Getenv("KEELSON_KUBE"); path != "" {
		found, err := exec.LookPath(path)
		if err != nil {
			return "", fmt.Errorf("%s: KEELSON_KUBE is not the path of a program (%w): correct or unset it", what, err)
		}
		return filepath.Abs(found)
	}
	beside, err := Beside("keelson-kube")
	if err == nil {
		return beside, nil
	}
	path, err := exec.LookPath("keelson-kube")
	if err != nil {
		return "", fmt.Errorf("%s, was found neither at %s nor in PATH: build it with `make build`, or set KEELSON_KUBE", what, beside)
	}
	return filepath.Abs(path)
}

// NodePrograms returns the folder where the programs of a real node are expected: the folder node beside this program.
// $KEELSON_NODE overrides it.
func NodePrograms() (string, error) {
	if path := os.Getenv("KEELSON_NODE"); path != "" {
		return filepath.Abs(path)
	}
	path, err := Beside("node")
	if errors.Is(err, fs.ErrNotExist) {
		return path, nil // what is missing in it is told by who needs it
	}
	return path, err
}

// Beside returns the path of a program in the folder of this one. The error says that there is none; the path is then
// where it was looked for.
func Beside(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(self), name)
	_, err = os.Stat(path)
	return path, err
}

// Describe returns what a person wants to know about an instance, in several lines.
func Describe(r controlplane.Report, now time.Time) string {
	if !r.Exists {
		return fmt.Sprintf("Keelson was never started in %s.\n", r.Dir)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", headline(r))
	data := r.Dir
	if r.Ephemeral {
		data += " (ephemeral: deleted when it stops)"
	}
	fmt.Fprintf(&b, "  data        %s\n  kubeconfig  %s\n  server      %s\n", data, r.Kubeconfig, r.Server)
	if r.APIError != "" {
		fmt.Fprintf(&b, "  API error   %s\n", r.APIError)
	}
	if r.EtcdAlarm != "" {
		fmt.Fprintf(&b, "  etcd alarm  %s\n", r.EtcdAlarm)
	}
	if r.ManagerPID == 0 && !r.Running() {
		return b.String() // how the components ended is of no interest then
	}
	b.WriteString("\n")
	for _, c := range r.Components {
		detail := c.Ended
		switch process.State(c.State) {
		case process.Running:
			detail = fmt.Sprintf("pid %d, up %s", c.PID, now.Sub(c.StartedAt).Round(time.Second))
		case process.Starting:
			detail = "" // it has no pid yet
		}
		b.WriteString(strings.TrimRight(fmt.Sprintf("  %-24s %-8s %s", c.Name, c.State, detail), " ") + "\n")
	}
	return b.String()
}

// headline sums an instance up in one line, with what to do where something is wrong.
func headline(r controlplane.Report) string {
	up, down := upAgain(r), Command("down", r.Dir)
	logs := filepath.Join(r.Dir, "logs")
	switch {
	case r.ManagerPID != 0 && r.APIReady && r.EtcdAlarm != "":
		return fmt.Sprintf("Keelson is running (pid %d), but etcd has an alarm.", r.ManagerPID)
	case r.ManagerPID != 0 && r.APIReady:
		return fmt.Sprintf("Keelson is running (pid %d).", r.ManagerPID)
	case r.ManagerPID != 0 && r.Running():
		return fmt.Sprintf("Keelson is running (pid %d), but its API is not ready: it is starting or stopping, or has a problem; see the logs in %s.", r.ManagerPID, logs)
	case r.ManagerPID != 0:
		return fmt.Sprintf("Keelson is starting or stopping (pid %d).", r.ManagerPID)
	case r.Running():
		return fmt.Sprintf("Keelson is not running, but some of its components are. `%s` adopts them, `%s` stops them.", up, down)
	case r.Ephemeral:
		return fmt.Sprintf("Keelson is stopped, but its ephemeral data is left. `%s` deletes it.", down)
	default:
		return fmt.Sprintf("Keelson is stopped. `%s` starts it with its data.", up)
	}
}

// upAgain returns the command that starts an instance as it was started before.
func upAgain(r controlplane.Report) string {
	command := Command("up", r.Dir)
	if r.Ephemeral && r.Dir != ephemeralDir() {
		command += " --ephemeral"
	}
	return command
}

// ErrGone is returned by SignalManager when the program is gone already.
var ErrGone = errors.New("gone already")

// SignalManager asks the program that looks after an instance to stop.
func SignalManager(pid int) error {
	err := syscall.Kill(pid, syscall.SIGTERM)
	if errors.Is(err, syscall.ESRCH) {
		return ErrGone
	}
	if err != nil {
		return err
	}
	// Suspended by Ctrl-Z, it would not see the signal. To others this means nothing, so it cannot fail in a way that matters.
	_ = syscall.Kill(pid, syscall.SIGCONT)
	return nil
}

// IsGone tells whether the program of this pid has ended. One that has ended and that its parent does not ask about,
// as first processes of containers do, has ended too.
func IsGone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // "pid (name) state ...", proc_pid_stat(5)
	if err != nil {
		return false // no Linux, or gone just now: the next look tells
	}
	name := strings.LastIndexByte(string(stat), ')')
	return name >= 0 && strings.HasPrefix(string(stat[name:]), ") Z")
}
