// Package node finds out whether this machine can run a real Kubernetes node, and writes down which one. The node itself
// is the program keelson-node, which the module node/ builds: the seam is that program and a file of settings.
package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Program is the name of the program that runs a node.
const Program = "keelson-node"

// besides are the programs that it needs in its own folder.
var besides = []string{Program, "containerd-shim-runc-v2", "host-local", "loopback", "no-dad", "pause", "portmap", "ptp"}

// Machine is what matters about a machine that is to run a node.
type Machine struct {
	// Root reports whether this program runs as root. If not, Rootless has what the node needs instead.
	Root     bool
	Rootless Rootless
	// Capabilities of this program, as the kernel numbers them.
	Capabilities uint64
	// Cgroups is the version of the cgroups at /sys/fs/cgroup; 0 if there are none.
	Cgroups int
	// NoControllers are the controllers of cgroups, of those that Pods need, that cgroups below that one cannot have.
	NoControllers []string
	// Programs is the folder of keelson-node, and NoProgram the first of its programs that is missing.
	Programs, NoProgram string
	// Layers is the folder in which the real nodes of several control planes share layers of images. Empty means one of the data directory.
	Layers string
	// Runtime is the path of runc or of crun, Iptables and Nft those of the programs of that name. Empty if missing.
	Runtime, Iptables, Nft string
	// IPv6 reports whether nodes can have IPv6 next to IPv4, with all that holds for IPv4. They cannot without root.
	IPv6 bool
	// OldCrun is the version of a crun that is too old to be the runtime; empty if there is none, or it is not needed.
	OldCrun string
}

// The capabilities that matter, by their numbers in capabilities(7).
const (
	capNetAdmin    = 1 << 12
	capSysAdmin    = 1 << 21
	capSysResource = 1 << 24
)

// Look looks at this machine. Programs is the folder where keelson-node is expected.
func Look(programs string) Machine {
	m := Machine{Root: os.Geteuid() == 0, Programs: programs, Cgroups: cgroups(cgroupRoot)}
	m.NoControllers = missingControllers(cgroupRoot, m.Cgroups)
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		m.Capabilities = capabilities(string(status))
	}
	if !m.Root {
		m.Rootless = lookRootless("/")
	}
	for _, name := range besides {
		if _, err := exec.LookPath(filepath.Join(programs, name)); err != nil {
			m.NoProgram = name
			break
		}
	}
	m.Runtime, m.OldCrun = findRuntime()
	m.Iptables = find("iptables")
	m.Nft = find("nft")
	m.IPv6 = TryIPv6(m) == nil
	return m
}

// firstCrun is the first version of crun that takes what containerd asks for: those before it refuse every container for the
// version of the specification alone.
var firstCrun = []int{1, 14, 3}

// findRuntime returns the path of the container runtime, or the version of one that is too old.
func findRuntime() (path, tooOld string) {
	if runc := find("runc"); runc != "" {
		return runc, ""
	}
	crun := find("crun")
	if crun == "" {
		return "", ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, crun, "--version").Output()
	if version := oldCrun(string(out)); err == nil && version != "" {
		return "", version
	}
	return crun, ""
}

// oldCrun returns the version in what `crun --version` prints if it is one that is too old. What it cannot read counts as
// new enough.
func oldCrun(text string) string {
	fields := strings.Fields(text)
	if len(fields) < 3 || fields[0] != "crun" || fields[1] != "version" {
		return ""
	}
	var version []int
	for part := range strings.SplitSeq(fields[2], ".") {
		number, err := strconv.Atoi(part)
		if err != nil {
			return ""
		}
		version = append(version, number)
	}
	if slices.Compare(version, firstCrun) >= 0 {
		return ""
	}
	return fields[2]
}

// find returns the path of the first of the programs that is there. Where programs for root are, is not in everybody's
// PATH, but in that of the node.
func find(names ...string) string {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil && filepath.IsAbs(path) {
			return path
		}
		for _, folder := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin"} {
			if path, err := exec.LookPath(filepath.Join(folder, name)); err == nil {
				return path
			}
		}
	}
	return ""
}

// capabilities reads the effective capabilities from the text of /proc/self/status.
func capabilities(status string) uint64 {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, "CapEff:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			if err != nil {
				return 0
			}
			return set
		}
	}
	return 0
}

// Missing returns what the machine lacks for a real node, each with what to do about it; nothing if it can run one.
func (m Machine) Missing() []string {
	if m.Root {
		return append(m.missingPrivileges(), m.missingPrograms()...)
	}
	return append(m.Rootless.missing(m.Cgroups), m.missingPrograms()...)
}

// missingPrivileges returns what root may not do here.
func (m Machine) missingPrivileges() []string {
	var missing []string
	for name, bit := range map[string]uint64{"CAP_NET_ADMIN": capNetAdmin, "CAP_SYS_ADMIN": capSysAdmin} {
		if m.Capabilities&bit == 0 {
			missing = append(missing, "the capability "+name)
		}
	}
	slices.Sort(missing)
	switch {
	case m.Cgroups == 0:
		missing = append(missing, "cgroups at /sys/fs/cgroup")
	case len(m.NoControllers) > 0:
		missing = append(missing, fmt.Sprintf("controllers for cgroups below /sys/fs/cgroup (%s)", strings.Join(m.NoControllers, ", ")))
	}
	return missing
}

// missingPrograms returns what has to be installed or built.
func (m Machine) missingPrograms() []string {
	var missing []string
	if m.NoProgram != "" {
		missing = append(missing, fmt.Sprintf("%s (build it with `make node`)", filepath.Join(m.Programs, m.NoProgram)))
	}
	switch {
	case m.Runtime != "":
	case m.OldCrun != "":
		missing = append(missing, fmt.Sprintf("runc (a package of that name), or crun 1.14.3 or later (it is %s)", m.OldCrun))
	default:
		missing = append(missing, "runc or crun (a package of that name)")
	}
	if m.Iptables == "" && m.Nft == "" {
		missing = append(missing, "iptables or nft (packages iptables, nftables)")
	}
	return missing
}

// proxyMode is how kube-proxy makes Services reachable on this machine.
func (m Machine) proxyMode() string {
	if m.Iptables != "" {
		return "iptables"
	}
	return "nftables"
}
