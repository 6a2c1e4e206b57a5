package doctor

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/internal/cli/instance"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/docker"
	"github.com/keelson-dev/keelson/internal/driver/qemu"
	"github.com/keelson-dev/keelson/internal/manager"
	"github.com/keelson-dev/keelson/internal/node"
)

const (
	// minDisk is the free space that a control plane needs to start with: etcd reserves 64 MB for each log file.
	minDisk = 512 << 20
	// minMemory is the available memory of a control plane with the controllers, as in docs/sizing.md.
	minMemory = 512 << 20
)

// result returns a check that fails with an error.
func result(name, found string, err error) check {
	if err != nil {
		return check{Name: name, State: missing, Detail: strings.TrimPrefix(err.Error(), backend.ErrMissing.Error()+": ")}
	}
	return check{Name: name, State: ok, Detail: found}
}

// checkControlPlane checks what keelson up needs.
func checkControlPlane(dir string) []check {
	kube, err := instance.KubeBinary()
	return []check{result("components", kube, err), checkDisk(dir), checkMemory()}
}

// checkDisk checks the file system of the data directory.
func checkDisk(dir string) check {
	existing := dir
	for ; existing != filepath.Dir(existing); existing = filepath.Dir(existing) {
		if _, err := os.Stat(existing); err == nil {
			break
		}
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(existing, &fs); err != nil {
		return check{Name: "disk", State: missing, Detail: fmt.Sprintf("the file system of %s cannot be read: %v", existing, err)}
	}
	return enough("disk", int64(fs.Bavail)*int64(fs.Bsize), minDisk, //nolint:gosec // no file system is that large
		"free in the file system of "+dir, "free some, or choose another directory with --data-dir")
}

// checkMemory checks the available memory.
func checkMemory() check {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return check{Name: "memory", State: limited, Detail: err.Error()}
	}
	memory, err := proc.Meminfo()
	if err != nil {
		return check{Name: "memory", State: limited, Detail: err.Error()}
	}
	var available uint64
	if memory.MemAvailableBytes != nil {
		available = *memory.MemAvailableBytes
	}
	return enough("memory", int64(available), minMemory, "available", "end other programs, or add memory") //nolint:gosec // no memory is that large
}

// enough compares an amount in bytes with the least that is needed.
func enough(name string, have, need int64, where, remedy string) check {
	detail := fmt.Sprintf("%.1f GiB %s", float64(have)/(1<<30), where)
	if have < need {
		return check{Name: name, State: missing, Detail: fmt.Sprintf("%s; %.1f GiB are needed: %s", detail, float64(need)/(1<<30), remedy)}
	}
	return check{Name: name, State: ok, Detail: detail}
}

// checkNode checks what a real node needs.
func checkNode() []check {
	programs, err := instance.NodePrograms()
	if err != nil {
		return []check{result("node", "", err)}
	}
	host := node.Look(programs)
	var checks []check
	for _, what := range host.Missing() {
		name, remedy, _ := strings.Cut(what, " (")
		checks = append(checks, check{Name: name, State: missing, Detail: strings.TrimSuffix(remedy, ")")})
	}
	if len(checks) > 0 {
		return checks
	}
	how := "as root"
	if !host.Root {
		how = "without root"
	}
	checks = append(checks, check{Name: "node", State: ok, Detail: fmt.Sprintf("%s, with %s and cgroups of version %d", how, host.Runtime, host.Cgroups)})
	if err := node.TryIPv6(host); err != nil {
		return append(checks, check{Name: "IPv6", State: limited, Detail: fmt.Sprintf("nodes have IPv4 only: %v", err)})
	}
	return append(checks, check{Name: "IPv6", State: ok})
}

// checkMachines checks what machines of the driver qemu need.
func checkMachines(ctx context.Context) []check {
	defaults := manager.NewOptions().Machines
	checks := []check{
		result("QEMU", "", qemu.Missing()),
		result("default guest", defaults.GuestDir, qemu.CheckGuest(defaults.GuestDir)),
	}
	if checks[0].State == ok {
		checks[0].Detail = versionOf(ctx, qemu.Program())
	}
	users, err := qemu.ParseUserRange(defaults.Users)
	if err != nil {
		return append(checks, result("users", "", err))
	}
	limits := qemu.Limits(users, checks[0].Detail)
	for _, l := range limits {
		checks = append(checks, check{Name: l.What, State: limited, Detail: l.Detail})
	}
	if len(limits) == 0 {
		checks = append(checks, check{Name: "KVM, confinement", State: ok})
	}
	return checks
}

// versionOf returns the first line that a program prints about its version.
func versionOf(ctx context.Context, program string) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return fmt.Sprintf("%s --version: %v", program, err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return cmp.Or(strings.TrimSpace(line), program)
}

// checkDocker checks what machines of the driver docker need.
func checkDocker() []check {
	return []check{result("engine", "enable the driver with --vm-driver=qemu,docker", docker.Missing(""))}
}
