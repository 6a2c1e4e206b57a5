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

// machinesGrace is the time for the guests of an instance to power off.
const machinesGrace = 10 * time.Second

// StopMachines powers off the virtual machines of an instance whose manager is not running. The
// next manager starts them again. With deleteData it also deletes the machines' data outside the
// data directory.
func StopMachines(ctx context.Context, dir string, deleteData bool) error {
	containers := docker.StopAll
	if deleteData {
		containers = docker.DeleteAll
	}
	err := errors.Join(
		qemu.StopAll(ctx, manager.MachinesDir(dir), machinesGrace),
		containers(ctx, manager.ContainersDir(dir), machinesGrace),
	)
	if err != nil {
		return fmt.Errorf("stop the virtual machines: %w", err)
	}
	return nil
}
