package process

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// stat has fields of /proc/PID/stat, see proc_pid_stat(5).
type stat struct {
	start   string // clock ticks since boot
	session int
	exiting bool // the first thread is exiting
	gone    bool // a zombie, or dead
}

// pfExiting is PF_EXITING of include/linux/sched.h, a flag of a thread that has begun to exit.
const pfExiting = 0x4

// bootID identifies the current boot of the host.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

func readStat(pid int) (stat, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, err
	}
	return parseStat(string(data))
}

// parseStat parses the fields after the command name, which may itself contain blanks and parentheses.
func parseStat(data string) (stat, error) {
	_, rest, ok := cutLast(data, ")")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 {
		return stat{}, errors.New("unexpected format of /proc/PID/stat")
	}
	session, err := strconv.Atoi(fields[3])
	if err != nil {
		return stat{}, err
	}
	threads, err := strconv.Atoi(fields[17])
	if err != nil {
		return stat{}, err
	}
	flags, err := strconv.ParseUint(fields[6], 10, 32)
	if err != nil {
		return stat{}, err
	}
	s := stat{start: fields[19], session: session}
	switch fields[0] {
	case "Z":
		// The first thread may end before the others; the process lives as long as one of them does.
		s.gone = threads <= 1
	case "X", "x":
		s.gone = true
	default:
		s.exiting = flags&pfExiting != 0
	}
	return s, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// identify returns the identity of the process that currently has this pid, which may be a zombie.
func identify(pid int) (identity, error) {
	s, err := readStat(pid)
	if err != nil {
		return identity{}, err
	}
	return identity{PID: pid, Start: s.start}, nil
}

// pidAlive reports whether any process with this pid lives.
func pidAlive(pid int) bool {
	s, err := readStat(pid)
	return err == nil && !s.gone
}

// isDying reports whether a live process is about to end: SIGKILL is pending, which stays visible until the end, or its
// first thread has begun to exit. It releases its files, and with them locks and ports, only later.
func isDying(pid int) bool {
	if s, err := readStat(pid); err != nil || s.gone || s.exiting {
		return err == nil && !s.gone
	}
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	return err == nil && hasPendingKill(string(status))
}

// hasPendingKill reads the signals that wait for a process, or for its first thread, from the text of /proc/PID/status.
func hasPendingKill(status string) bool {
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		if name != "SigPnd" && name != "ShdPnd" {
			continue
		}
		set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		if err == nil && set&(1<<(syscall.SIGKILL-1)) != 0 {
			return true
		}
	}
	return false
}

// isAlive reports whether the process is alive and its pid was not reused. marker is the NAME=value that it was started
// with. If the environment cannot be read (another user, a setuid program) or has lost the marker (nginx overwrites it),
// pid and start time identify the process.
func isAlive(id identity, marker string) bool {
	s, err := readStat(id.PID)
	if err != nil || s.gone || s.start != id.Start {
		return false
	}
	name, _, _ := strings.Cut(marker, "=")
	value, found := environ(id.PID)[name]
	return !found || name+"="+value == marker
}

// environ returns our two markers from the environment of a process, by name.
func environ(pid int) map[string]string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil || !bytes.Contains(data, []byte("KEELSON_")) {
		return nil
	}
	found := map[string]string{}
	for entry := range bytes.SplitSeq(data, []byte{0}) {
		for _, marker := range []string{childMarker, shimMarker} {
			if value, ok := bytes.CutPrefix(entry, []byte(marker)); ok {
				found[strings.TrimSuffix(marker, "=")] = string(value)
			}
		}
	}
	return found
}

// findByMarker searches all processes for the child of a record and its shims. Descendants of the child inherit its
// marker; the child is the oldest session leader among them.
func findByMarker(rec record) (child *identity, shims []identity) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, nil
	}
	defer closeQuietly(proc)
	names, _ := proc.Readdirnames(-1) // use what could be read
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		markers := environ(pid)
		isChild := childMarker+markers["KEELSON_PROCESS"] == rec.marker()
		isShim := shimMarker+markers["KEELSON_SHIM"] == rec.shimMarker()
		if !isChild && !isShim {
			continue
		}
		s, err := readStat(pid)
		if err != nil || s.gone {
			continue
		}
		id := identity{PID: pid, Start: s.start}
		if isShim {
			shims = append(shims, id)
		} else if s.session == pid && (child == nil || earlier(id.Start, child.Start)) {
			child = &id
		}
	}
	return child, shims
}

// earlier compares two start times without parsing them.
func earlier(a, b string) bool {
	if len(a) != len(b) {
		return len(a) < len(b)
	}
	return a < b
}

// setName makes ps and top show the shim under its name; the kernel would call it "exe".
func setName(name string) {
	_ = os.WriteFile("/proc/self/comm", []byte(name), 0) // cosmetic
}
