package virtualmachine

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
)

// newDisks returns the disks of spec.disks for a driver.
func newDisks(disks []v1alpha1.Disk) []backend.Disk {
	var all []backend.Disk
	for _, disk := range disks {
		if disk.VirtualDisk != "" {
			all = append(all, backend.Disk{Name: disk.Name, VirtualDisk: disk.VirtualDisk})
			continue
		}
		d := backend.Disk{Name: disk.Name, Retain: disk.DeletePolicy == v1alpha1.DiskRetain}
		if disk.Size != nil {
			d.SizeBytes = disk.Size.Value()
		}
		if disk.Image != nil {
			d.Image = newDiskImage(disk.Image)
		}
		all = append(all, d)
	}
	return all
}

// newDiskImage returns the image of a disk for a driver.
func newDiskImage(image *v1alpha1.DiskImage) *v1alpha1.Image {
	return &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: image.Path, URL: image.URL, Sha256: image.Sha256, Format: image.Format}}
}

func newCDROM(drive *v1alpha1.CDROM) *v1alpha1.Image {
	if drive == nil {
		return nil
	}
	return newDiskImage(&drive.Image)
}

// newFirmware returns the firmware for a driver, "" for the default.
func newFirmware(firmware v1alpha1.Firmware) v1alpha1.Firmware {
	if firmware == v1alpha1.FirmwareBIOS {
		return ""
	}
	return firmware
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
	inUse := false
	for _, disk := range server.Disks {
		words := disk.Message
		if disk.Name != "" {
			words = fmt.Sprintf("disk %s: %s", disk.Name, disk.Message)
		}
		inUse = inUse || disk.InUse
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
	case inUse:
		return newCondition(v1alpha1.ConditionDisksReady, metav1.ConditionFalse, v1alpha1.ReasonDiskInUse, "%s", strings.Join(waiting, "; "))
	case len(waiting) > 0:
		return newCondition(v1alpha1.ConditionDisksReady, metav1.ConditionFalse, v1alpha1.ReasonDisksPending, "%s", strings.Join(waiting, "; "))
	}
	return newCondition(v1alpha1.ConditionDisksReady, metav1.ConditionTrue, v1alpha1.ReasonDisksUpToDate, "The machine has the disks of spec.disks")
}

// recordDiskEvent records that a change of the disks has failed, once.
func (r *Reconciler) recordDiskEvent(before, after *v1alpha1.VirtualMachine) {
	was, is := kube.ConditionTransition(before.Status.Conditions, after.Status.Conditions, v1alpha1.ConditionDisksReady)
	if was.Reason != is.Reason && is.Reason == v1alpha1.ReasonDiskFailed {
		r.Events.Warning(after, is.Reason, "ChangeDisks", is.Message)
	}
}
