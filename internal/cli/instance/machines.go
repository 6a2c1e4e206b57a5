package instance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keelson-dev/keelson/internal/driver/docker"
	"github.com/keelson-dev/keelson/internal/driver/qemu"
	"github.com/keelson-dev/keelson/internal/manager"
)

const (
	// machinesGrace is the time for the guests of an instance to power off.
	machinesGrace = 10 * time.Second
	// sleepTimeout is the time before that to save the memory of machines with spec.onHostShutdown: Sleep.
	sleepTimeout = time.Minute
)

// StopMachines powers off the virtual machines of an instance whose manager is not running, or puts them to sleep. The
// next manager starts or wakes them again. With deleteData it also deletes the machines' data outside the
// data directory.
func StopMachines(ctx context.Context, dir string, deleteData bool) error {
	containers, machines := docker.StopAll, qemu.StopOptions{Grace: machinesGrace, SleepTimeout: sleepTimeout}
	if deleteData {
		containers, machines.SleepTimeout = docker.DeleteAll, 0
	}
	err := errors.Join(
		qemu.StopAll(ctx, manager.MachinesDir(dir), machines),
		containers(ctx, manager.ContainersDir(dir), machinesGrace),
	)
	if err != nil {
		return fmt.Errorf("stop the virtual machines: %w", err)
	}
	return nil
}

// DescribeUnsaved returns a warning for each machine of an instance that was shut down at that time or later although
// spec.onHostShutdown is Sleep.
func DescribeUnsaved(dir string, since time.Time) []string {
	unsaved, err := qemu.FindUnsaved(manager.MachinesDir(dir), since)
	var all []string
	for _, m := range unsaved {
		all = append(all, fmt.Sprintf("Warning: VirtualMachine %s/%s was shut down instead of put to sleep, and its memory is lost: %s.", m.Namespace, m.Name, m.Reason))
	}
	if err != nil { // the machines are stopped nevertheless
		all = append(all, fmt.Sprintf("Warning: could not look for machines that were shut down instead of put to sleep: %v.", err))
	}
	return all
}
