package virtualmachine

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// newDisks returns the disks of spec.disks for a driver.
func newDisks(disks []v1alpha1.Disk) []backend.Disk {
	var all []backend.Disk
	for _, disk := range disks {
		d := backend.Disk{Name: disk.Name, Retain: disk.DeletePolicy == v1alpha1.DiskRetain}
		if disk.Size != nil {
			d.SizeBytes = disk.Size.Value()
		}
		if image := disk.Image; image != nil {
			d.Image = &v1alpha1.Image{Path: image.Path, URL: image.URL, Sha256: image.Sha256, Format: image.Format}
		}
		all = append(all, d)
	}
	return all
}

// retainedDisks returns the names of the disks that are kept when the machine is deleted.
func retainedDisks(disks []v1alpha1.Disk) []string {
	var names []string
	for _, disk := range disks {
		if disk.DeletePolicy == v1alpha1.DiskRetain {
			names = append(names, disk.Name)
		}
	}
	return names
}

// summarizeDisks returns the condition DisksReady of a server that exists.
func summarizeDisks(server *backend.Server) metav1.Condition {
	var waiting, failed []string
	for _, disk := range server.Disks {
		words := disk.Message
		if disk.Name != "" {
			words = fmt.Sprintf("disk %s: %s", disk.Name, disk.Message)
		}
		if disk.Failed {
			failed = append(failed, words)
		} else {
			waiting = append(waiting, words)
		}
	}
	switch {
	case len(failed) > 0:
		return newCondition(v1alpha1.ConditionDisksReady, metav1.ConditionFalse, v1alpha1.ReasonDiskFailed,
			"%s. Keelson retries", strings.Join(append(failed, waiting...), "; "))
	case len(waiting) > 0:
		return newCondition(v1alpha1.ConditionDisksReady, metav1.ConditionFalse, v1alpha1.ReasonDisksPending, "%s", strings.Join(waiting, "; "))
	}
	return newCondition(v1alpha1.ConditionDisksReady, metav1.ConditionTrue, v1alpha1.ReasonDisksUpToDate, "The machine has the disks of spec.disks")
}
