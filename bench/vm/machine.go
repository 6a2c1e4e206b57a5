package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/keelson-dev/keelson/bench/internal/harness"
	"github.com/keelson-dev/keelson/internal/manager"
	"github.com/keelson-dev/keelson/internal/process"
)

// machines returns the QEMUs of all VirtualMachines, in the order of their process ids.
func (b *bench) machines() ([]int, error) { return b.processes(false) }

// network returns the switch of the one namespace with machines.
func (b *bench) network() (int, error) {
	pids, err := b.processes(true)
	if err == nil && len(pids) != 1 {
		err = fmt.Errorf("%d switches run, want 1", len(pids))
	}
	if err != nil {
		return 0, err
	}
	return pids[0], nil
}

// processes returns the switches of networks that run, or the QEMUs, in the order of their process ids.
func (b *bench) processes(switches bool) (pids []int, err error) {
	statuses, err := process.Peek(filepath.Join(manager.MachinesDir(b.stateDir()), "processes"))
	for _, s := range statuses {
		// The other process is the one in which a template is made.
		if s.State == process.Running && s.ID != "template" && strings.HasPrefix(s.ID, "network.") == switches {
			pids = append(pids, s.PID)
		}
	}
	slices.Sort(pids)
	return pids, err
}

// setNetwork sets the memory of a switch.
func setNetwork(s *harness.Sample, pid int) error {
	memory, err := harness.MemoryOf(pid)
	s.Set("network", memory.PSS)
	s.Set("network own", memory.RSS-memory.File)
	return err
}

// commandLine returns the arguments of a process, the first of which is the program.
func commandLine(pid int) ([]string, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00"), err
}

// setMachines sets the processes of machines and their mean memory (PSS): that of QEMU without the guest, of the guest, of the
// shim of a VirtualMachine, and of all these.
func setMachines(s *harness.Sample, pids []int) error {
	var qemu, shims, guests float64
	for _, pid := range pids {
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
		if err != nil {
			return err
		}
		guest, rest, err := splitMemory(string(maps), memory<<20)
		if err != nil {
			return fmt.Errorf("the memory of process %d: %w", pid, err)
		}
		_, shim, err := harness.MemoryWithShim(pid)
		if err != nil {
			return err
		}
		qemu, shims, guests = qemu+rest, shims+shim.PSS, guests+guest
		s.Set("pids", append(s.Figures["pids"], float64(pid))...)
	}
	n := float64(len(pids))
	s.Set("QEMU", qemu/n)
	s.Set("guest", guests/n)
	if s.Contestant != bare && s.Contestant != besidePods { // whose parent is the script
		s.Set("shim", shims/n)
	} else {
		shims = 0
	}
	s.Set("each", (qemu+guests+shims)/n)
	return nil
}

// splitMemory reads /proc/PID/smaps (proc_pid_smaps(5)). It returns the PSS of the memory of the guest, the one private
// mapping of that size that has no file, or that of a template, and that of all others, in bytes.
func splitMemory(smaps string, size int) (guest, rest float64, err error) {
	isPrivate, isGuest, guests := false, false, 0
	for line := range strings.Lines(smaps) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kilobytes, _ := strconv.Atoi(fields[1])
		switch {
		case strings.Contains(fields[0], "-"): // the addresses of a mapping
			hasNoFile := len(fields) == 5 || strings.HasPrefix(fields[5], "/memfd:")
			isPrivate, isGuest = fields[1] == "rw-p" && hasNoFile, false
		case fields[0] == "Size:" && isPrivate && kilobytes<<10 == size:
			isGuest = true
			guests++
		case fields[0] == "Pss:" && isGuest:
			guest += float64(kilobytes << 10)
		case fields[0] == "Pss:":
			rest += float64(kilobytes << 10)
		}
	}
	if guests != 1 {
		return 0, 0, fmt.Errorf("%d mappings look like the memory of the guest, want 1", guests)
	}
	return guest, rest, nil
}
