package virtualmachine

import (
	"context"
	"testing"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/fake"
	"github.com/keelson-dev/keelson/internal/kube"
)

// A driver that hangs must not block a worker for ever.
func TestCallsOfDriversHaveDeadlines(t *testing.T) {
	w := newFixture(t)
	w.create()
	driver := &deadlines{Driver: w.backend}
	w.drivers = NewDrivers([]string{fake.Name}, map[string]Opener{fake.Name: func() (Driver, error) { return driver, nil }}, w.Clock)
	w.Reconciler = NewReconciler(kube.NewBase(kind, w.Client, w.Client, w.Recorder, w.Clock), w.drivers)
	w.reconcileUntilStable()
	w.Delete()
	w.reconcileUntilStable()
	if driver.with == 0 || driver.without > 0 {
		t.Errorf("%d calls of the driver had a deadline, %d had none", driver.with, driver.without)
	}
}

// deadlines counts calls with and without a deadline.
type deadlines struct {
	*fake.Driver
	with, without int
}

func (d *deadlines) look(ctx context.Context) {
	if _, found := ctx.Deadline(); found {
		d.with++
	} else {
		d.without++
	}
}

func (d *deadlines) Observe(ctx context.Context, id backend.Identity) (backend.Server, error) {
	d.look(ctx)
	return d.Driver.Observe(ctx, id)
}

func (d *deadlines) Create(ctx context.Context, machine backend.Machine) error {
	d.look(ctx)
	return d.Driver.Create(ctx, machine)
}
