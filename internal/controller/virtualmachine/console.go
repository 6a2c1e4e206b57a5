package virtualmachine

import (
	"context"
	"fmt"

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
