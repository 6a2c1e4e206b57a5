//go:build !linux

package process

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// bootID identifies the current boot of the host.
func bootID() string {
	id, err := syscall.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}

// ps returns the lines that ps prints for these arguments, nil if there is no such process. LC_ALL keeps the format
// of the start time the same for every caller.
func ps(args ...string) []string {
	cmd := exec.Command("ps", args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	out, err := cmd.Output()
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimRight(string(out), "\n"), "\n")
}

// identify returns the identity of the process that has this pid now.
func identify(pid int) (identity, error) {
	lines := ps("-o", "lstart=", "-p", strconv.Itoa(pid))
	if len(lines) == 0 {
		return identity{}, syscall.ESRCH
	}
	return identity{PID: pid, Start: strings.TrimSpace(lines[0])}, nil
}

// pidAlive reports whether any process with this pid lives.
func pidAlive(pid int) bool {
	return pid > 0 && syscall.Kill(pid, 0) != syscall.ESRCH
}

// isDying reports whether a live process is about to end; this system does not show it.
func isDying(int) bool { return false }

// isAlive reports whether the process is alive and its pid was not reused. The environment of other processes cannot be
// read reliably here, so the start time (in seconds) decides.
func isAlive(id identity, _ string) bool {
	lines := ps("-o", "stat=,lstart=", "-p", strconv.Itoa(id.PID))
	if len(lines) == 0 {
		return false
	}
	state, start, _ := strings.Cut(strings.TrimSpace(lines[0]), " ")
	return !strings.HasPrefix(state, "Z") && strings.TrimSpace(start) == id.Start
}

// findByMarker searches all processes for the child of a record and its shims. For processes of the same user, ps -E prints
// the environment after the arguments.
func findByMarker(rec record) (child *identity, shims []identity) {
	for _, line := range ps("-axwwE", "-o", "pid=,command=") {
		number, command, _ := strings.Cut(strings.TrimSpace(line), " ")
		pid, err := strconv.Atoi(number)
		if err != nil {
			continue
		}
		isChild := strings.Contains(command, rec.marker())
		isShim := strings.Contains(command, rec.shimMarker())
		if !isChild && !isShim {
			continue
		}
		id, err := identify(pid)
		if err != nil {
			continue
		}
		if isShim {
			shims = append(shims, id)
		} else if group, err := syscall.Getpgid(pid); err == nil && group == pid && child == nil {
			child = &id
		}
	}
	return child, shims
}

// setName does nothing: ps shows argv[0] here.
func setName(string) {}

// executable returns a path that starts this program.
func executable() (string, error) { return os.Executable() }
