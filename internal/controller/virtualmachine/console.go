package virtualmachine

import (
	"context"
	"fmt"
	"io"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
)

// Locator finds the servers of VirtualMachines, for access to them.
type Locator struct {
	cache, live client.Reader
	drivers     *Drivers
}

// NewLocator returns a Locator that reads VirtualMachines from a cache, and those that it does not have from live: a user may
// have created one just now.
func NewLocator(cache, live client.Reader, drivers *Drivers) *Locator {
	return &Locator{cache: cache, live: live, drivers: drivers}
}

// Locate returns the driver of a VirtualMachine and the identity of its server, which need not exist. The error is one of
// the API, a backend.ErrMissing, or a backend.ErrUnavailable.
func (l *Locator) Locate(ctx context.Context, namespace, name string) (Driver, backend.Identity, error) {
	var vm v1alpha1.VirtualMachine
	if err := kube.GetNew(ctx, l.cache, l.live, client.ObjectKey{Namespace: namespace, Name: name}, &vm); err != nil {
		return nil, backend.Identity{}, err
	}
	// The UID is what drivers need.
	id := backend.Identity{UID: vm.UID, Namespace: namespace, Name: name}
	driverName, err := driverOf(&vm, l.drivers.Default())
	if err != nil {
		return nil, id, fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	driver, err := l.drivers.get(driverName)
	if err != nil {
		return nil, id, err
	}
	if err := checkHost(&vm, driver.Host()); err != nil {
		return nil, id, fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	return driver, id, nil
}

// Console implements backend.Consoler. The calls are for users, not part of a reconcile, so they have no traces.
func (c *instrumentedDriver) Console(ctx context.Context, id backend.Identity) (io.ReadWriteCloser, error) {
	if consoler, ok := c.Driver.(backend.Consoler); ok {
		return consoler.Console(ctx, id)
	}
	return nil, c.noConsole()
}

// ConsoleLog implements backend.Consoler.
func (c *instrumentedDriver) ConsoleLog(ctx context.Context, id backend.Identity, options backend.LogOptions) (io.ReadCloser, error) {
	if consoler, ok := c.Driver.(backend.Consoler); ok {
		return consoler.ConsoleLog(ctx, id, options)
	}
	return nil, c.noConsole()
}

// Attend implements backend.Attender.
func (c *instrumentedDriver) Attend(ctx context.Context, id backend.Identity) (release func(), err error) {
	if attender, ok := c.Driver.(backend.Attender); ok {
		return attender.Attend(ctx, id)
	}
	return func() {}, nil
}

// Screen implements backend.Screener.
func (c *instrumentedDriver) Screen(ctx context.Context, id backend.Identity) (io.ReadWriteCloser, error) {
	if screener, ok := c.Driver.(backend.Screener); ok {
		return screener.Screen(ctx, id)
	}
	return nil, c.noScreen()
}

// Screenshot implements backend.Screener.
func (c *instrumentedDriver) Screenshot(ctx context.Context, id backend.Identity) ([]byte, error) {
	if screener, ok := c.Driver.(backend.Screener); ok {
		return screener.Screenshot(ctx, id)
	}
	return nil, c.noScreen()
}

func (c *instrumentedDriver) noScreen() error {
	return fmt.Errorf("%w: machines of the driver %s have no display", backend.ErrInvalid, c.Name())
}

func (c *instrumentedDriver) noConsole() error {
	return fmt.Errorf("%w: machines of the driver %s have no console", backend.ErrInvalid, c.Name())
}
