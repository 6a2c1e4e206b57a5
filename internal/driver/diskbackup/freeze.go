package diskbackup

import (
	"context"
	"time"

	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

// FreezeTimeout is how long a guest may take to write what it has cached. Its programs that write wait meanwhile.
const FreezeTimeout = 10 * time.Second

// Freeze has the agent of a running guest freeze its file systems, so that everything that was written to them is on the disks. Thaw has
// to be called after it, whether it has succeeded or not.
func Freeze(ctx context.Context, agent *qmp.Client) error {
	ctx, cancel := context.WithTimeout(ctx, FreezeTimeout)
	defer cancel()
	return agent.Run(ctx, "guest-fsfreeze-freeze", nil, nil)
}

// Thaw has the agent thaw the file systems, and reports whether they were frozen until then. If it fails, they may be frozen.
func Thaw(ctx context.Context, agent *qmp.Client) (wasFrozen bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, FreezeTimeout)
	defer cancel()
	var thawed int
	// An agent that rejects the command has not frozen anything.
	if err := agent.Run(ctx, "guest-fsfreeze-thaw", nil, &thawed); !isRefusal(err) {
		return false, err
	}
	return thawed > 0, nil
}
