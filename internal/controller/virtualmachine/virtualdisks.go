package virtualmachine

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// DiskStore returns the driver that keeps VirtualDisks: the named one, or the first one of the manager that can.
func (d *Drivers) DiskStore(driver string) (backend.DiskStore, v1alpha1.Host, error) {
	return storeIn[backend.DiskStore](d, driver, "VirtualDisks")
}

// WatchDisks sets the function to call with a VirtualDisk that has changed.
func (d *Drivers) WatchDisks(notify func(backend.DiskIdentity)) { d.disks.Watch(notify) }

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
