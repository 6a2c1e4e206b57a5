package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// neededIDs is how many subordinate IDs a user needs: those that images and manifests commonly use.
const neededIDs = 65536

// IDs is a range of subordinate IDs.
type IDs struct {
	First int `json:"first"`
	Count int `json:"count"`
}

// Rootless is what matters about a user without root, beyond what matters about the machine. The zero value is for root.
type Rootless struct {
	// User is the login name.
	User string
	UID  int
	// UIDs and GIDs are the user's largest ranges in /etc/subuid and /etc/subgid.
	UIDs, GIDs IDs
	// FreeUID and FreeGID are the first IDs above all ranges in these files.
	FreeUID, FreeGID int
	// NewUIDMap, NewGIDMap and SystemdRun are the paths of the programs of these names. Empty if missing.
	NewUIDMap, NewGIDMap, SystemdRun string
	// Manager reports whether the user's systemd manager runs.
	Manager bool
	// NoControllers are the needed controllers of cgroups that are not delegated to that manager.
	NoControllers []string
	// Sysctl is the setting, as for sysctl(8), that would allow user namespaces. Empty if no known setting forbids them.
	Sysctl string
	// NoNamespaces is why user namespaces cannot be made, other than by Sysctl; NoTun is why /dev/net/tun cannot be
	// opened. Nil if they can.
	NoNamespaces, NoTun error
}

// lookRootless looks at the user that runs this program and at what the machine allows that user. Root is the root of the file system.
func lookRootless(root string) Rootless {
	r := Rootless{UID: os.Getuid(), NewUIDMap: find("newuidmap"), NewGIDMap: find("newgidmap"), SystemdRun: find("systemd-run")}
	r.User = strconv.Itoa(r.UID)
	if account, err := user.Current(); err == nil {
		r.User = account.Username
	}
	r.UIDs, r.FreeUID = readIDs(filepath.Join(root, "etc/subuid"), r.User, r.UID)
	r.GIDs, r.FreeGID = readIDs(filepath.Join(root, "etc/subgid"), r.User, r.UID)
	_, err := os.Stat(filepath.Join(root, RuntimeDir(r.UID), "systemd/private"))
	r.Manager = err == nil
	delegated := words(filepath.Join(root, cgroupRoot, managerCgroup(r.UID), "cgroup.controllers"))
	r.NoControllers = slices.DeleteFunc(slices.Clone(neededControllers), func(c string) bool { return slices.Contains(delegated, c) })
	r.Sysctl = forbids(filepath.Join(root, "proc/sys"))
	if r.Sysctl == "" {
		r.NoNamespaces = tryNamespaces()
	}
	tun, err := os.OpenFile(filepath.Join(root, "dev/net/tun"), os.O_RDWR, 0)
	if err == nil {
		_ = tun.Close() // nothing was written
	}
	r.NoTun = err
	return r
}

// RuntimeDir is where systemd keeps the sockets of a user, as in XDG_RUNTIME_DIR.
func RuntimeDir(uid int) string { return fmt.Sprintf("/run/user/%d", uid) }

// managerCgroup is the cgroup of a user's systemd manager, which delegates from its own to its units.
func managerCgroup(uid int) string {
	return fmt.Sprintf("user.slice/user-%[1]d.slice/user@%[1]d.service", uid)
}

// readIDs returns the largest range of a user in a file as in subuid(5), and the first ID above all ranges in it. The file names
// users by login name or ID. Lines that it cannot read do not count.
func readIDs(path, login string, uid int) (largest IDs, free int) {
	free = 100000 // where useradd(8) begins
	text, err := os.ReadFile(path)
	if err != nil {
		return IDs{}, free
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) != 3 {
			continue
		}
		first, errFirst := strconv.Atoi(fields[1])
		count, errCount := strconv.Atoi(fields[2])
		if cmp.Or(errFirst, errCount) != nil {
			continue
		}
		free = max(free, first+count)
		if (fields[0] == login || fields[0] == strconv.Itoa(uid)) && count > largest.Count {
			largest = IDs{First: first, Count: count}
		}
	}
	return largest, free
}

// forbids returns the setting that would allow user namespaces if one below this folder forbids them.
func forbids(proc string) string {
	for _, parameter := range []struct{ path, forbidden, allowed string }{
		{"user/max_user_namespaces", "0", "user.max_user_namespaces=15000"},
		{"kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"},                         // Debian
		{"kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"}, // Ubuntu
	} {
		if slices.Equal(words(filepath.Join(proc, parameter.path)), []string{parameter.forbidden}) {
			return parameter.allowed
		}
	}
	return ""
}

// tryNamespaces makes namespaces and ends them. The error is what the program unshare says.
func tryNamespaces() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	output, err := exec.CommandContext(ctx, "unshare", "--user", "--net", "--mount", "true").CombinedOutput()
	if err == nil || errors.Is(err, exec.ErrNotFound) {
		return nil
	}
	return errors.New(cmp.Or(strings.TrimSpace(string(output)), err.Error()))
}

// missing returns what the user lacks for a node without root, each with the command that mends it. Cgroups is the version of the machine's.
func (r Rootless) missing(cgroups int) (missing []string) {
	add := func(format string, args ...any) { missing = append(missing, fmt.Sprintf(format, args...)) }
	switch {
	case cgroups != 2:
		add("cgroups of version 2 (boot with the kernel parameter systemd.unified_cgroup_hierarchy=1)")
	case r.SystemdRun == "":
		add("systemd, which delegates cgroups to users (systemd-run is not installed)")
	case !r.Manager:
		add("the systemd manager of %s (`sudo loginctl enable-linger %[1]s`)", r.User)
	case len(r.NoControllers) > 0:
		add("delegated cgroup controllers %s (`printf '[Service]\\nDelegate=%s\\n' | sudo install -D -m 644 /dev/stdin "+
			"/etc/systemd/system/user@.service.d/delegate.conf`, and reboot)", strings.Join(r.NoControllers, ", "), strings.Join(neededControllers, " "))
	}
	if r.NewUIDMap == "" || r.NewGIDMap == "" {
		add("newuidmap and newgidmap (`sudo apt-get install uidmap`, or `sudo dnf install shadow-utils`)")
	}
	for _, kind := range []struct {
		file, flag string
		has        IDs
		free       int
	}{
		{"/etc/subuid", "--add-subuids", r.UIDs, r.FreeUID},
		{"/etc/subgid", "--add-subgids", r.GIDs, r.FreeGID},
	} {
		if kind.has.Count < neededIDs {
			add("%d subordinate IDs of %s in %s (`sudo usermod %s %d-%d %[2]s`)", neededIDs, r.User, kind.file, kind.flag, kind.free, kind.free+neededIDs-1)
		}
	}
	switch {
	case r.Sysctl != "":
		add("user namespaces (`sudo sysctl -w %s`)", r.Sysctl)
	case r.NoNamespaces != nil:
		add("user namespaces (%v; in a container, its runtime must allow them)", r.NoNamespaces)
	}
	switch {
	case errors.Is(r.NoTun, fs.ErrPermission):
		add("access to /dev/net/tun (`sudo chmod 666 /dev/net/tun`)")
	case r.NoTun != nil:
		add("/dev/net/tun (`sudo modprobe tun`)")
	}
	return missing
}
