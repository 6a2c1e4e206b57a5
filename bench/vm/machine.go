package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/keelson-dev/keelson/bench/internal/measure"
)

// machine is a running one.
type machine struct {
	// qemu is the id of its process, shim that of the process that watches over it; 0 if nobody does.
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
	parent, err := measure.ParentOf(pid)
	if err != nil {
		return 0, err
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", parent))
	if err != nil || strings.TrimSpace(string(name)) != "keelson-shim" {
		return 0, err
	}
	return parent, nil
}

// overhead is memory of machines besides that of their guests, in bytes a machine. Pages that several share count in
// part for each.
type overhead struct {
	// QEMU is that of QEMU, Shim that of the process that watches over it.
	QEMU float64 `json:"qemuBytes"`
	Shim float64 `json:"shimBytes"`
	// Guest is how much of the memory of the guest is in use on the host.
	Guest float64 `json:"guestBytes"`
}

// sum returns all that is not the guest's.
func (o overhead) sum() float64 { return o.QEMU + o.Shim }

// overheadOf returns the mean of machines.
func overheadOf(machines []machine) (overhead, error) {
	var sum overhead
	for _, m := range machines {
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", m.qemu))
		if err != nil {
			return sum, err
		}
		guest, rest, err := splitMemory(maps, memory<<20)
		if err != nil {
			return sum, fmt.Errorf("the memory of process %d: %w", m.qemu, err)
		}
		sum.Guest += float64(guest)
		sum.QEMU += float64(rest)
		if m.shim == 0 {
			continue
		}
		if maps, err = os.ReadFile(fmt.Sprintf("/proc/%d/smaps", m.shim)); err != nil {
			return sum, err
		}
		_, shim, err := splitMemory(maps, 0)
		if err != nil {
			return sum, fmt.Errorf("the memory of process %d: %w", m.shim, err)
		}
		sum.Shim += float64(shim)
	}
	n := float64(len(machines))
	return overhead{QEMU: sum.QEMU / n, Shim: sum.Shim / n, Guest: sum.Guest / n}, nil
}

// splitMemory reads /proc/PID/smaps (proc_pid_smaps(5)) and returns the PSS of the one mapping of just that size that
// is private and has no file, which is the memory of the guest, and that of all others; in bytes. Of size 0 there is
// none.
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
			isGuest = size > 0 && to-from == size && fields[1] == "rw-p" && len(fields) == 5
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
	if size > 0 && guests != 1 {
		return 0, 0, fmt.Errorf("%d mappings look like the memory of the guest", guests)
	}
	return guest, rest, errors.Join(lines.Err())
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
