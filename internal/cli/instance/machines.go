package instance

import (
	"context"
	"fmt"
	"time"

	"github.com/keelson-dev/keelson/internal/driver/qemu"
	"github.com/keelson-dev/keelson/internal/manager"
)

// machinesGrace is how long the guests of an instance get to power off when it stops.
const machinesGrace = 10 * time.Second

// StopMachines powers off the virtual machines of an instance whose manager is not running. They are started again by
// the next one.
func StopMachines(ctx context.Context, dir string) error {
	if err := qemu.StopAll(ctx, manager.MachinesDir(dir), machinesGrace); err != nil {
		return fmt.Errorf("stop the virtual machines: %w", err)
	}
	return nil
}
