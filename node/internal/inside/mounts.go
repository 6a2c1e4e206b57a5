package inside

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/node/internal/settings"
)

// mount is one mount(2).
type mount struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
}

func (m mount) do() error {
	if err := unix.Mount(m.source, m.target, m.fstype, m.flags, m.data); err != nil {
		return fmt.Errorf("mount %s on %s: %w", m.source, m.target, err)
	}
	return nil
}

// kept are the folders of the node's directory, and where they are inside.
var kept = map[string]string{
	"containerd": "/var/lib/containerd",
	"kubelet":    "/var/lib/kubelet",
	"log":        "/var/log",

	settings.Volumes: settings.VolumesInside,
}

// prepareMounts gives the node folders of its own. It happens in a mount namespace of our own: mounts of the machine
// come in, also later ones, and none of ours goes out.
func prepareMounts(s settings.Settings) error {
	for _, m := range []mount{
		{"", "/", "", unix.MS_REC | unix.MS_SLAVE, ""},
		{"", "/", "", unix.MS_REC | unix.MS_SHARED, ""}, // within the node; kubelet needs it for mount propagation
		{"proc", "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
	} {
		if err := m.do(); err != nil {
			return err
		}
	}
	// What will be covered is opened first, to be mounted again from there.
	opened, err := openAll(map[string]string{nodeDir: s.Dir, programsDir: s.Programs, kubeBinary: s.Kube, "cgroup": cgroupRoot})
	if err != nil {
		return err
	}
	defer opened.close()
	resolv, err := os.ReadFile("/etc/resolv.conf")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	cgroups := mount{opened.path("cgroup"), cgroupRoot, "", unix.MS_BIND | unix.MS_REC, ""}
	if s.Rootless != nil { // the cgroup that is delegated to the node is the root of its cgroup namespace
		cgroups = mount{"cgroup2", cgroupRoot, "cgroup2", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""}
	}
	for _, m := range []mount{
		{"sysfs", "/sys", "sysfs", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""}, // of our network namespace
		cgroups,
		{"tmpfs", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755"},
		{"tmpfs", "/var/lib", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755"},
	} {
		if err := m.do(); err != nil {
			return err
		}
	}
	if err := opened.mount(nodeDir, programsDir, kubeBinary); err != nil {
		return err
	}
	for folder, target := range kept {
		source := filepath.Join(nodeDir, folder)
		if err := errors.Join(os.MkdirAll(source, 0o700), os.MkdirAll(target, 0o755)); err != nil {
			return err
		}
		if err := (mount{source, target, "", unix.MS_BIND, ""}).do(); err != nil {
			return err
		}
	}
	if err := os.WriteFile(resolvConf, []byte(podResolvers(string(resolv), s.NodeAddress().Addr())), 0o644); err != nil {
		return err
	}
	// Where everybody looks for it, such as the part of kubelet that counts what containers use.
	if err := os.Mkdir("/run/containerd", 0o755); err != nil {
		return err
	}
	if err := os.Symlink(containerdSocket, "/run/containerd/containerd.sock"); err != nil {
		return err
	}
	return keepTunables()
}

// openedPaths are files and folders that stay within reach when something is mounted over them.
type openedPaths map[string]*os.File

func openAll(paths map[string]string) (openedPaths, error) {
	opened := openedPaths{}
	for name, path := range paths {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			opened.close()
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
		opened[name] = os.NewFile(uintptr(fd), path)
	}
	return opened, nil
}

func (o openedPaths) path(name string) string {
	return fmt.Sprintf("/proc/self/fd/%d", o[name].Fd())
}

func (o openedPaths) close() {
	for _, file := range o {
		_ = file.Close()
	}
}

// mount binds what was opened under these names, which are paths, to them.
func (o openedPaths) mount(names ...string) error {
	for _, name := range names {
		info, err := os.Stat(o.path(name))
		if err != nil {
			return err
		}
		if info.IsDir() {
			err = os.MkdirAll(name, 0o755)
		} else if err = os.MkdirAll(filepath.Dir(name), 0o755); err == nil {
			err = os.WriteFile(name, nil, 0o644)
		}
		if err != nil {
			return err
		}
		if err := (mount{o.path(name), name, "", unix.MS_BIND, ""}).do(); err != nil {
			return err
		}
	}
	return nil
}

// podResolvers returns what is to be in resolv.conf of Pods: all that the machine's says, but that the server is the node,
// which asks the machine's.
func podResolvers(machine string, node netip.Addr) string {
	var b strings.Builder
	for line := range strings.Lines(machine) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] != "nameserver" {
			b.WriteString(strings.TrimRight(line, "\n") + "\n")
		}
	}
	return b.String() + "nameserver " + node.String() + "\n"
}

// wanted are kernel parameters, and the values that kubelet sets if it does not find them. They have no namespaces: on
// the machine some of them would change how everything else fares.
var wanted = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// keepTunables has kubelet find the values that it wants, and leaves the machine's as they are.
func keepTunables() error {
	for name, value := range wanted {
		target := filepath.Join("/proc/sys", name)
		if _, err := os.Stat(target); err != nil {
			continue
		}
		source := filepath.Join(tunables, name)
		if err := os.MkdirAll(filepath.Dir(source), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(source, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := (mount{source, target, "", unix.MS_BIND, ""}).do(); err != nil {
			return err
		}
	}
	return nil
}

// snapshotter returns containerd's store for root file systems: layers on top of each other where the file system of the
// node's directory can, else full copies.
func snapshotter() (string, error) {
	dir, err := os.MkdirTemp("/var/lib/containerd", ".overlay-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for _, folder := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
			return "", err
		}
	}
	merged := filepath.Join(dir, "merged")
	err = unix.Mount("overlay", merged, "overlay", 0, fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", dir))
	if err != nil {
		return "native", nil
	}
	return "overlayfs", unix.Unmount(merged, 0)
}
