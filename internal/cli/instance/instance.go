// Package instance finds Keelson on this machine: its data directory, its programs and its
// processes. The commands up, down and status share it.
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

// HostName returns the name of this host, for display.
func HostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "this host"
	}
	return name
}

// KubeBinary returns the path of keelson-kube, the program with the Kubernetes components: next to
// this program, otherwise from PATH. $KEELSON_KUBE overrides both.
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

// NodePrograms returns the folder for the programs of a real node: the folder node next to this
// program. $KEELSON_NODE overrides it.
func NodePrograms() (string, error) {
	if path := os.Getenv("KEELSON_NODE"); path != "" {
		return filepath.Abs(path)
	}
	path, err := Beside("node")
	if errors.Is(err, fs.ErrNotExist) {
		return path, nil // its users report missing programs
	}
	return path, err
}

// Beside returns the path of a program in the folder of this one. It returns the path also with the
// error that the program does not exist.
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

// Describe describes an instance for people, in several lines.
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
		return b.String() // the ends of the components do not matter then
	}
	b.WriteString("\n")
	for _, c := range r.Components {
		detail := c.Ended
		switch process.State(c.State) {
		case process.Running:
			detail = fmt.Sprintf("pid %d, up %s", c.PID, now.Sub(c.StartedAt).Round(time.Second))
		case process.Starting:
			detail = "" // no pid yet
		}
		b.WriteString(strings.TrimRight(fmt.Sprintf("  %-24s %-8s %s", c.Name, c.State, detail), " ") + "\n")
	}
	return b.String()
}

// headline summarizes an instance in one line, with the command that repairs it.
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

// upAgain returns the command that restarts an instance with the same flags.
func upAgain(r controlplane.Report) string {
	command := Command("up", r.Dir)
	if r.Ephemeral && r.Dir != ephemeralDir() {
		command += " --ephemeral"
	}
	return command
}

// ErrGone means that the process has already ended.
var ErrGone = errors.New("process has already ended")

// SignalManager asks the process of an instance to stop.
func SignalManager(pid int) error {
	err := syscall.Kill(pid, syscall.SIGTERM)
	if errors.Is(err, syscall.ESRCH) {
		return ErrGone
	}
	if err != nil {
		return err
	}
	// A process suspended by Ctrl-Z would not get the signal. For others SIGCONT has no effect, so
	// its errors do not matter.
	_ = syscall.Kill(pid, syscall.SIGCONT)
	return nil
}
