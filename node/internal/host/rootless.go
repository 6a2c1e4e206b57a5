package host

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/node/internal/handover"
	"github.com/keelson-dev/keelson/node/internal/inside"
	"github.com/keelson-dev/keelson/node/internal/settings"
)

// cgroupRoot is where cgroups are: version 2 itself, or a folder for each hierarchy of version 1.
const cgroupRoot = "/sys/fs/cgroup"

// scopeVariable is the environment variable of a program that systemd-run has started.
const scopeVariable = "KEELSON_NODE_SCOPE"

// programsCgroup is the name of the cgroup of everything in the node but Pods.
const programsCgroup = "node"

// enterScope returns the path, below cgroupRoot, of a cgroup that systemd delegates to the user, in which this process is alone. To get
// there, it replaces this program by systemd-run, which starts it again with the same process ID.
func enterScope(s settings.Settings, path string) (string, error) {
	if os.Getenv(scopeVariable) != "" {
		own, err := os.ReadFile("/proc/self/cgroup")
		if err != nil {
			return "", err
		}
		return unifiedCgroup(string(own))
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	args := []string{
		"systemd-run", "--user", "--scope", "--quiet", "--collect", "--description=Keelson node " + s.ID,
		"--property=Delegate=cpu cpuset memory pids", "--", self, "run", path,
	}
	env := append(os.Environ(), scopeVariable+"=1", "XDG_RUNTIME_DIR="+s.Rootless.RuntimeDir)
	return "", fmt.Errorf("start %s: %w", s.Rootless.SystemdRun, unix.Exec(s.Rootless.SystemdRun, args, env))
}

// leaveScope moves processes from a cgroup to a child of it: one of version 2 cannot hand controllers down while processes are in itself.
// It stays the root of their cgroup namespaces.
func leaveScope(scope string, pids ...int) error {
	programs := filepath.Join(cgroupRoot, scope, programsCgroup)
	if err := os.Mkdir(programs, 0o755); err != nil {
		return err
	}
	for _, pid := range pids {
		if err := os.WriteFile(filepath.Join(programs, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
			return fmt.Errorf("move to the cgroup %s: %w", programs, err)
		}
	}
	return nil
}

// unifiedCgroup returns the path of the cgroup of version 2 in the text of /proc/self/cgroup, without a slash at its beginning.
func unifiedCgroup(text string) (string, error) {
	for line := range strings.Lines(text) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::/"); ok {
			return path, nil
		}
	}
	return "", errors.New("this process is in no cgroup of version 2")
}

// becomeRoot gives a process in a user namespace its IDs, so that the user is root there, and tells it.
func becomeRoot(r settings.Rootless, pid int, inside *net.UnixConn) error {
	for _, m := range []struct {
		program string
		own     int
		more    settings.IDs
	}{
		{r.NewUIDMap, os.Getuid(), r.UIDs},
		{r.NewGIDMap, os.Getgid(), r.GIDs},
	} {
		var args []string
		for _, number := range []int{pid, 0, m.own, 1, 1, m.more.First, m.more.Count} {
			args = append(args, strconv.Itoa(number))
		}
		if output, err := exec.Command(m.program, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s: %w: %s", m.program, strings.Join(args, " "), err, bytes.TrimSpace(output))
		}
	}
	return handover.Go(inside)
}

// Remove deletes what a node without root keeps in its directory. The user owns only a part of these files, and the rest with
// the IDs of the node.
func Remove(path string) error {
	s, err := settings.Read(path)
	if err != nil {
		return err
	}
	if s.Rootless == nil {
		return fmt.Errorf("%s is for a node that root runs", path)
	}
	return removeAsRoot(s, inside.KeptIn(s.Dir)...)
}

// removeAsRoot deletes folders of a node without root in a user namespace with the IDs of the node.
func removeAsRoot(s settings.Settings, paths ...string) error {
	runtime.LockOSThread() // with its end the kernel ends the other process
	defer runtime.UnlockOSThread()
	remover, ours, err := launch(s, 0, append([]string{"remove-inside"}, paths...)...)
	if err != nil {
		return err
	}
	defer func() { _ = ours.Close() }()
	return remover.Wait()
}
