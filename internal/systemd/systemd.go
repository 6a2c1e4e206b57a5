// Package systemd finds out whether the systemd around this process would end the machines and clusters that it starts. These
// are processes that have to outlive a restart of the manager, and they are in its control group.
package systemd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// askTimeout is how long systemd may take to answer.
const askTimeout = 2 * time.Second

// surroundings are what decides. The zero value is a process without systemd.
type surroundings struct {
	// unit is the unit that the process is in, such as keelson-manager.service or session-3.scope.
	unit string
	// user says that the unit belongs to the service manager of a user.
	user bool
	// killMode is KillMode of a service; see systemd.kill(5).
	killMode string
	// killsSession says that logind ends what is left of a session at the logout; see KillUserProcesses in logind.conf(5).
	killsSession bool
}

// Warning returns what the user of this process should know: that a stop of its unit, or a logout, ends all machines and
// clusters, and how to prevent that. It is empty if nothing is wrong, or if there is no systemd to ask.
func Warning(ctx context.Context) string {
	if _, err := os.Stat("/run/systemd/system"); err != nil { // see sd_booted(3)
		return ""
	}
	cgroups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	s := parse(string(cgroups))
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	switch {
	case strings.HasSuffix(s.unit, ".service"):
		manager := "--system"
		if s.user {
			manager = "--user"
		}
		s.killMode = ask(ctx, "systemctl", manager, "show", "--property=KillMode", "--value", s.unit)
	case s.isSession() && os.Getuid() != 0: // logind leaves root alone, see KillExcludeUsers
		s.killsSession = ask(ctx, "loginctl", "show-session", "--property=KillUserProcesses", "--value") == "yes"
	}
	return warning(s)
}

// ask returns what a program prints; empty if it fails, because then there is nothing to warn about.
func ask(ctx context.Context, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(out))
}

// parse reads the unit from /proc/PID/cgroup; see cgroups(7). The unit is the last part of the path that is the name of one:
// a unit may have control groups below its own.
func parse(cgroups string) surroundings {
	var path string
	for line := range strings.Lines(cgroups) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) < 3 {
			continue
		}
		// On a host with both versions systemd keeps its units in the named hierarchy.
		if fields[1] == "name=systemd" || fields[1] == "" && path == "" {
			path = fields[2]
		}
	}
	var s surroundings
	for part := range strings.SplitSeq(path, "/") {
		if strings.HasPrefix(s.unit, "user@") {
			s.user = true
		}
		if strings.HasSuffix(part, ".service") || strings.HasSuffix(part, ".scope") {
			s.unit = part
		}
	}
	return s
}

func (s surroundings) isSession() bool {
	return strings.HasPrefix(s.unit, "session-") && strings.HasSuffix(s.unit, ".scope")
}

// warning decides what to say.
func warning(s surroundings) string {
	switch {
	case s.killMode == "control-group" || s.killMode == "mixed":
		return fmt.Sprintf("The unit %s has KillMode=%s: whenever it stops or restarts, systemd kills all virtual machines and clusters. "+
			"Set KillMode=process in its section [Service], as the units in config/systemd do", s.unit, s.killMode)
	case s.killsSession:
		return "logind has KillUserProcesses=yes: when you log out, it kills all virtual machines and clusters. " +
			"Type `loginctl enable-linger` once, and start keelson with `systemd-run --user --scope keelson ...`"
	}
	return ""
}
