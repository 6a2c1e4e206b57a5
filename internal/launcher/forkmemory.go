package launcher

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

// hardwareAddress is the hardware address that QEMU gives all machines. A guest that goes on as another machine keeps it: the network that
// QEMU loads with the memory knows the address 10.0.2.15, which the ports lead to, as that of this card.
const hardwareAddress = "52:54:00:12:34:56"

// forkTimeout is savedmemory.ForkTimeout. Tests shorten it.
var forkTimeout = savedmemory.ForkTimeout

// Identity identifies a machine.
type Identity struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// identity returns that of the machine.
func (d *Definition) identity() Identity {
	return Identity{UID: d.UID, Namespace: d.Namespace, Name: d.Name}
}

// forkMemory makes a new machine one that is asleep with the memory in the snapshot, when it has its disks. That is done once, even if a Pod comes
// too late that an earlier manager has made: the machine may have run since. If the machine boots, what an earlier attempt has left is of
// another epoch.
func (f *filler) forkMemory(ctx context.Context) error {
	if f.fill.Memory == nil {
		return nil
	}
	record := filepath.Join(f.dirs.Disk, restoreFile)
	if last, err := readRestoring(record); err != nil || last.Token == f.fill.Epoch {
		return err
	}
	err := discardMemory(f.dirs.Disk)
	if err == nil {
		err = f.copyMemory(ctx)
	}
	if err != nil {
		f.removeCopies(f.fill.Disks)
		return err
	}
	if err := f.restoreMemory(f.fill.Disks, &savedMemory{Memory: *f.fill.Memory, Epoch: f.fill.Epoch, GuestOf: f.fill.Of}); err != nil {
		return err
	}
	if err := atomicfile.WriteJSON(record, &restoring{Token: f.fill.Epoch}, atomicfile.Durable); err != nil {
		return fmt.Errorf("record that the machine has the memory of the snapshot: %w", err)
	}
	step("fork recorded")
	return nil
}

// disconnectFork takes the network from a guest that has the memory of another machine, before it runs. It gets it when it knows which machine
// it is.
func (l *launcher) disconnectFork(conn *qmp.Client) error {
	if l.memory.GuestOf == nil {
		return nil
	}
	if err := savedmemory.SetLink(context.Background(), conn, false); err != nil {
		return fmt.Errorf("take the network from the guest: %w", err)
	}
	step("fork disconnected")
	l.unnamed.Store(true)
	l.limitFork()
	return nil
}

// limitFork ends a guest later that does not know then which machine it is.
func (l *launcher) limitFork() {
	limit := forkTimeout
	time.AfterFunc(limit, func() {
		if l.unnamed.Load() {
			l.bootInstead(fmt.Sprintf("its agent did not answer within %s", limit))
		}
	})
}

// bootInstead ends a guest that does not know which machine it is. The machine boots then.
func (l *launcher) bootInstead(why string) {
	select {
	case l.boots <- why:
	default: // it ends already
	}
}

// renameGuest tells a guest that has the memory of another machine which machine it is, and connects its network.
func (l *launcher) renameGuest(ctx context.Context, agent *qmp.Client) error {
	if !l.unnamed.Load() {
		return nil
	}
	monitor := l.access.currentMonitor()
	if monitor == nil {
		return errNoGuest
	}
	if err := savedmemory.Rename(ctx, agent, monitor, hardwareAddress, l.definition.UID); err != nil {
		if savedmemory.IsUnusable(err) {
			l.bootInstead(err.Error())
		}
		return err
	}
	l.unnamed.Store(false)
	step("fork complete")
	return nil
}
