package virtualmachine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/testing/statuscheck"
)

func TestDisksOfMachine(t *testing.T) {
	size := resource.MustParse("1Gi")
	disks := []v1alpha1.Disk{
		{Name: "data", Size: &size, DeletePolicy: v1alpha1.DiskDelete},
		{Name: "kept", Image: &v1alpha1.DiskImage{ImageSource: v1alpha1.ImageSource{Path: "/a", Format: "raw"}}, DeletePolicy: v1alpha1.DiskRetain},
	}
	want := []backend.Disk{
		{Name: "data", SizeBytes: 1 << 30},
		{Name: "kept", Image: &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: "/a", Format: "raw"}}, Retain: true},
	}
	if diff := cmp.Diff(want, newDisks(disks)); diff != "" {
		t.Errorf("disks (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"kept"}, retainedDisks(disks)); diff != "" {
		t.Errorf("retained disks (-want +got):\n%s", diff)
	}
}

// A change of the fields reaches the driver. Fields without a value do not: a new version of the manager would otherwise
// reconfigure every machine.
func TestHashOfDisks(t *testing.T) {
	base := v1alpha1.VirtualMachineSpec{}
	bios := v1alpha1.VirtualMachineSpec{Firmware: v1alpha1.FirmwareBIOS, Disks: []v1alpha1.Disk{}}
	if hash(&base) != hash(&bios) {
		t.Error("defaults change the hash")
	}
	for name, spec := range map[string]v1alpha1.VirtualMachineSpec{
		"a disk":    {Disks: []v1alpha1.Disk{{Name: "a", Size: ptr.To(resource.MustParse("1Gi"))}}},
		"a CD-ROM":  {CDROM: &v1alpha1.CDROM{Image: v1alpha1.DiskImage{ImageSource: v1alpha1.ImageSource{Path: "/a"}}}},
		"firmware":  {Firmware: v1alpha1.FirmwareUEFI},
		"CPU model": {CPUModel: "qemu64"},
	} {
		if hash(&spec) == hash(&base) {
			t.Errorf("%s does not change the hash", name)
		}
	}
}

func TestDisksReady(t *testing.T) {
	for _, test := range []struct {
		name   string
		disks  []backend.PendingDisk
		status metav1.ConditionStatus
		reason string
		says   string
	}{
		{"all are as specified", nil, metav1.ConditionTrue, v1alpha1.ReasonDisksUpToDate, "The machine has the disks of spec.disks"},
		{
			"the guest holds one", []backend.PendingDisk{{Name: "data", Message: "waiting for the guest to release it"}},
			metav1.ConditionFalse, v1alpha1.ReasonDisksPending, "Disk data: waiting for the guest to release it",
		},
		{
			"another machine has one", []backend.PendingDisk{{Name: "data", Message: "waiting for the VirtualDisk a, which the machine b has", InUse: true}},
			metav1.ConditionFalse, v1alpha1.ReasonDiskInUse, "Disk data: waiting for the VirtualDisk a, which the machine b has",
		},
		{
			"one has failed", []backend.PendingDisk{{Name: "a", Message: "being added"}, {Name: "b", Message: "no space left", Failed: true}},
			metav1.ConditionFalse, v1alpha1.ReasonDiskFailed, "Disk b: no space left; disk a: being added. Keelson retries",
		},
		{"nothing is known", []backend.PendingDisk{{Message: "the disks are being checked"}}, metav1.ConditionFalse, v1alpha1.ReasonDisksPending, "The disks are being checked"},
	} {
		got := summarizeDisks(&backend.Server{Disks: test.disks})
		want := metav1.Condition{Type: v1alpha1.ConditionDisksReady, Status: test.status, Reason: test.reason, Message: test.says}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// A disk is added without a restart. A failure is a condition and an event, once, and what is retained is the driver's task.
func TestDisksChange(t *testing.T) {
	w := newFixture(t)
	w.createReady()
	size := resource.MustParse("1Gi")
	w.Change(func(vm *v1alpha1.VirtualMachine) {
		vm.Spec.Disks = []v1alpha1.Disk{{Name: "data", Size: &size}, {Name: "kept", Size: &size, DeletePolicy: v1alpha1.DiskRetain}}
	})
	w.reconcileUntilStable()
	w.expectCalls("Reconfigure")
	ready := func() string {
		condition := meta.FindStatusCondition(w.Object().Status.Conditions, v1alpha1.ConditionDisksReady)
		return string(condition.Status) + " " + condition.Reason
	}
	if got := ready(); got != "True DisksUpToDate" {
		t.Errorf("DisksReady is %s", got)
	}
	w.events()
	w.backend.PendDisks(w.uid(), backend.PendingDisk{Name: "data", Message: "no space left", Failed: true})
	w.reconcileUntilStable()
	if got := ready(); got != "False DiskFailed" {
		t.Errorf("DisksReady is %s", got)
	}
	if diff := cmp.Diff([]string{"Warning DiskFailed"}, w.events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	w.backend.PendDisks(w.uid())
	w.reconcileUntilStable()
	if got := ready(); got != "True DisksUpToDate" {
		t.Errorf("DisksReady is %s", got)
	}
	statuscheck.Verify(t, w.Object())
	w.Delete()
	w.reconcileUntilStable()
	if kept := w.backend.Kept(); !w.IsGone() || len(kept) != 1 || kept[0].Path != "kept" {
		t.Errorf("gone: %t, disks that were kept: %+v", w.IsGone(), kept)
	}
}
