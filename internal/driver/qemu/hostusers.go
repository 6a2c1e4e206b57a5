package qemu

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// neededCapabilities are the capabilities that root needs to run machines as other users and to
// find their processes.
var neededCapabilities = []struct {
	name string
	bit  uint
}{
	{"CAP_CHOWN", 0}, {"CAP_DAC_OVERRIDE", 1}, {"CAP_FOWNER", 3}, {"CAP_KILL", 5}, {"CAP_SETGID", 6}, {"CAP_SETUID", 7}, {"CAP_SYS_PTRACE", 19},
}

// newUsers returns the users of the machines. If there are none, why is the reason, for the log.
func newUsers(r UserRange) (u *users, why string, err error) {
	u = &users{taken: map[int]types.UID{}}
	if why := whyNoUsers(r); why != "" {
		return u, why, nil
	}
	if err := checkClash(r); err != nil {
		return nil, "", err
	}
	u.limits = r
	return u, "", nil
}

func whyNoUsers(r UserRange) string {
	status, err := os.ReadFile("/proc/self/status")
	switch {
	case r == (UserRange{}):
		return "virtualMachines.uidRange is empty"
	case os.Geteuid() != 0:
		return "the manager does not run as root"
	case err != nil:
		return "the capabilities of the manager cannot be read: " + err.Error()
	}
	if name := missingCapability(string(status)); name != "" {
		return "the manager lacks " + name
	}
	for _, file := range []string{"/proc/self/uid_map", "/proc/self/gid_map"} {
		if content, err := os.ReadFile(file); err != nil || !isMapped(string(content), r) {
			return "the user namespace of the manager does not have all of virtualMachines.uidRange: " + r.String()
		}
	}
	return ""
}

// missingCapability returns the first needed capability that is not effective, given the text of
// /proc/PID/status.
func missingCapability(status string) string {
	_, rest, _ := strings.Cut(status, "\nCapEff:")
	value, _, _ := strings.Cut(rest, "\n")
	set, _ := strconv.ParseUint(strings.TrimSpace(value), 16, 64) // unreadable counts as none
	for _, needed := range neededCapabilities {
		if set&(1<<needed.bit) == 0 {
			return needed.name
		}
	}
	return ""
}

// isMapped reports whether a line of /proc/PID/uid_map contains a whole range.
func isMapped(lines string, r UserRange) bool {
	for line := range strings.Lines(lines) {
		var inside, outside, count int
		if _, err := fmt.Sscan(line, &inside, &outside, &count); err == nil && inside <= r.First && r.Last < inside+count {
			return true
		}
	}
	return false
}

// kvmGroups returns the supplementary groups with which a machine can open a device of that mode
// and group, and whether it can. Machines never get the group root.
func kvmGroups(mode fs.FileMode, group int) (groups []int, usable bool) {
	switch {
	case mode&0o006 == 0o006:
		return nil, true
	case mode&0o060 == 0o060 && group != 0:
		return []int{group}, true
	}
	return nil, false
}

// useKVM lets machines use KVM. The error is the reason why their users may not.
func (u *users) useKVM() error {
	if u.limits == (UserRange{}) {
		return nil
	}
	info, err := os.Stat(kvmDevice)
	if err != nil {
		return err
	}
	group := 0
	if owner, known := info.Sys().(*syscall.Stat_t); known {
		group = int(owner.Gid)
	}
	groups, usable := kvmGroups(info.Mode(), group)
	if !usable {
		return fmt.Errorf("%w: only root can open %s, but machines run as other users: give it a group, for example with chgrp kvm %[2]s; chmod 660 %[2]s",
			backend.ErrMissing, kvmDevice)
	}
	u.groups = groups
	return nil
}

// checkOwner returns an error if a file in a state directory belongs to another user and this one
// is not root.
func checkOwner(stateDir string) error {
	if os.Geteuid() == 0 {
		return nil
	}
	return checkOwnerAs(stateDir, os.Geteuid())
}

func checkOwnerAs(stateDir string, user int) error {
	paths := []string{stateDir}
	for _, pattern := range []string{"*", "machines/*", "machines/*/*"} {
		found, _ := filepath.Glob(filepath.Join(stateDir, pattern)) // the pattern is well-formed
		paths = append(paths, found...)
	}
	for _, path := range paths {
		info, err := os.Lstat(path)
		if err != nil {
			continue // it no longer exists, or its directory is reported
		}
		if owner, known := info.Sys().(*syscall.Stat_t); known && int(owner.Uid) != user {
			return fmt.Errorf("%s belongs to user %d, but the manager runs as user %d: run it as root, as before, or stop all machines and run chown -R %[3]d %[4]s",
				path, owner.Uid, user, stateDir)
		}
	}
	return nil
}

// checkClash returns an error if the host has users or groups in a range, or allocates it as
// subordinate IDs.
func checkClash(r UserRange) error {
	for _, list := range []struct {
		path   string
		number int // the field with the first ID
		count  int // the field with the number of IDs; 0 means one ID
	}{
		{"/etc/passwd", 2, 0}, {"/etc/group", 2, 0}, {"/etc/subuid", 1, 2}, {"/etc/subgid", 1, 2},
	} {
		if err := checkList(list.path, list.number, list.count, r); err != nil {
			return err
		}
	}
	return nil
}

func checkList(path string, number, count int, r UserRange) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) <= max(number, count) {
			continue
		}
		first, err := strconv.Atoi(fields[number])
		if err != nil {
			continue
		}
		last := first
		if count > 0 {
			many, err := strconv.Atoi(fields[count])
			if err != nil {
				continue
			}
			last = first + many - 1
		}
		if first <= r.Last && last >= r.First {
			return fmt.Errorf("%w: virtualMachines.uidRange: %s overlaps with IDs that %s allocates to %q: choose another range",
				backend.ErrMissing, r, path, fields[0])
		}
	}
	return lines.Err()
}
