package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/keelson-dev/keelson/bench/internal/harness"
)

// machine is a running one.
type machine struct {
	// qemu is its process, shim the parent that waits for it, 0 without one.
	qemu, shim int
	arguments  []string
}

// findMachines finds the processes of machines by their UUIDs. Each has one.
func findMachines(uuids []string) ([]machine, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	found := map[string]machine{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue // it has just ended
		}
		arguments := strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00")
		at := slices.Index(arguments, "-uuid")
		if at < 0 || at+1 >= len(arguments) || !slices.Contains(uuids, arguments[at+1]) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, err
		}
		if _, twice := found[arguments[at+1]]; twice {
			return nil, fmt.Errorf("there are two machines %s", arguments[at+1])
		}
		shim, err := shimOf(pid)
		if err != nil {
			return nil, err
		}
		found[arguments[at+1]] = machine{qemu: pid, shim: shim, arguments: arguments}
	}
	machines := make([]machine, 0, len(uuids))
	for _, uuid := range uuids {
		m, there := found[uuid]
		if !there {
			return nil, fmt.Errorf("machine %s has no process", uuid)
		}
		machines = append(machines, m)
	}
	return machines, nil
}

// shimOf returns the parent of a process if that is a shim, else 0.
func shimOf(pid int) (int, error) {
	parent, err := harness.ParentOf(pid)
	if err != nil {
		return 0, err
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", parent))
	if err != nil || strings.TrimSpace(string(name)) != "keelson-shim" {
		return 0, err
	}
	return parent, nil
}

// setCosts sets the mean memory (PSS) of machines: that of QEMU without the guest, of the guest, and of the shim.
func setCosts(s *harness.Sample, machines []machine) error {
	var qemu, shim, guest float64
	for _, m := range machines {
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", m.qemu))
		if err != nil {
			return err
		}
		ofGuest, rest, err := splitMemory(maps, memory<<20)
		if err != nil {
			return fmt.Errorf("the memory of process %d: %w", m.qemu, err)
		}
		guest, qemu = guest+float64(ofGuest), qemu+float64(rest)
		if m.shim == 0 {
			continue
		}
		ofShim, err := harness.MemoryOf(m.shim)
		if err != nil {
			return err
		}
		shim += ofShim.PSS
	}
	n := float64(len(machines))
	s.Set("QEMU", qemu/n)
	s.Set("guest", guest/n)
	if shim > 0 {
		s.Set("shim", shim/n)
	}
	return nil
}

// pidsOf returns the processes of machines.
func pidsOf(machines []machine) (pids []float64) {
	for _, m := range machines {
		pids = append(pids, float64(m.qemu))
	}
	return pids
}

// splitMemory reads /proc/PID/smaps (proc_pid_smaps(5)). It returns the PSS of the memory of the guest, the one private
// mapping of that size without a file, and that of all others, in bytes.
func splitMemory(smaps []byte, size int64) (guest, rest int64, err error) {
	lines := bufio.NewScanner(bytes.NewReader(smaps))
	isGuest, guests := false, 0
	for lines.Scan() {
		line := lines.Text()
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		if from, to, is := addresses(fields[0]); is {
			isGuest = to-from == size && fields[1] == "rw-p" && len(fields) == 5
			if isGuest {
				guests++
			}
			continue
		}
		if fields[0] != "Pss:" {
			continue
		}
		kilobytes, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return 0, 0, err
		}
		if isGuest {
			guest += kilobytes << 10
		} else {
			rest += kilobytes << 10
		}
	}
	if guests != 1 {
		return 0, 0, fmt.Errorf("%d mappings look like the memory of the guest", guests)
	}
	return guest, rest, lines.Err()
}

// addresses reads the range that begins the first line of a mapping.
func addresses(text string) (from, to int64, is bool) {
	left, right, found := strings.Cut(text, "-")
	if !found {
		return 0, 0, false
	}
	begin, err := strconv.ParseUint(left, 16, 64)
	if err != nil {
		return 0, 0, false
	}
	end, err := strconv.ParseUint(right, 16, 64)
	return int64(begin), int64(end), err == nil //nolint:gosec // only their difference counts
}
