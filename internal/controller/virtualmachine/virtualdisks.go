package virtualmachine

import (
	"context"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// DiskStore returns the driver that keeps VirtualDisks: the named one, or the first one of the manager that can.
func (d *Drivers) DiskStore(driver string) (backend.DiskStore, v1alpha1.Host, error) {
	var first error
	for _, name := range d.names {
		if driver != "" && name != driver {
			continue
		}
		opened, err := d.get(name)
		if err != nil {
			if first == nil {
				first = err
			}
			continue
		}
		if store := storeOf[backend.DiskStore](opened); store != nil {
			host := opened.Host()
			return store, v1alpha1.Host{Driver: name, ID: host.ID, Name: host.Name}, nil
		}
	}
	if first == nil {
		first = fmt.Errorf("%w: --vm-driver=%s has no driver that keeps VirtualDisks; add qemu", backend.ErrMissing, strings.Join(d.names, ","))
	}
	return nil, v1alpha1.Host{}, first
}

// WatchDisks sets the function to call with a VirtualDisk that has changed.
func (d *Drivers) WatchDisks(notify func(backend.DiskIdentity)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notifyDisks = notify
}

// notifyDisk forwards a change to the function set by WatchDisks.
func (d *Drivers) notifyDisk(id backend.DiskIdentity) {
	d.mu.Lock()
	notify := d.notifyDisks
	d.mu.Unlock()
	notify(id)
}

// collectDisks reports the size of VirtualDisks.
func (c *collector) collectDisks(ctx context.Context, collected chan<- prometheus.Metric) {
	for _, driver := range c.drivers.alreadyOpen() {
		store := storeOf[backend.DiskStore](driver)
		if store == nil {
			continue
		}
		disks, err := store.Disks(ctx)
		if err != nil {
			continue // the next scrape tries again
		}
		seen := map[[2]string]bool{}
		for _, disk := range disks {
			labels := [2]string{disk.Namespace, disk.Name}
			if seen[labels] {
				continue // of another cluster, or of an object whose finalizer was removed
			}
			seen[labels] = true
			collected <- prometheus.MustNewConstMetric(vdiskAllocatedDesc, prometheus.GaugeValue, float64(disk.AllocatedBytes), labels[:]...)
			collected <- prometheus.MustNewConstMetric(vdiskVirtualDesc, prometheus.GaugeValue, float64(disk.VirtualBytes), labels[:]...)
		}
	}
}
