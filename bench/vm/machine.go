package main

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/keelson-dev/keelson/bench/internal/harness"
	"github.com/keelson-dev/keelson/internal/manager"
	"github.com/keelson-dev/keelson/internal/process"
)

// machines returns the QEMUs of all VirtualMachines.
func (b *bench) machines() (pids []int, err error) {
	statuses, err := process.Peek(filepath.Join(manager.MachinesDir(b.stateDir()), "processes"))
	for _, s := range statuses {
		// The others are the switches of networks, and the one in which a template is made.
		if s.State == process.Running && s.ID != "template" && !strings.HasPrefix(s.ID, "network.") {
			pids = append(pids, s.PID)
		}
	}
	return pids, err
}

// setMemory sets the processes of machines and their mean memory (PSS): QEMU with the guest, and the shim of a VirtualMachine.
func setMemory(s *harness.Sample, pids []int) error {
	all := slices.Clone(pids)
	for _, pid := range pids {
		s.Set("pids", append(s.Figures["pids"], float64(pid))...)
		if s.Contestant == bare { // whose parent is the script
			continue
		}
		shim, err := harness.Parent(pid)
		if err != nil {
			return err
		}
		all = append(all, shim)
	}
	memory, err := harness.MemoryOf(all...)
	s.Set("each", memory/float64(max(1, len(pids))))
	return err
}
