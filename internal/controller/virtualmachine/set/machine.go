package set

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// machineName returns the name of the machine with that number.
func machineName(set *v1alpha1.VirtualMachineSet, number int32) string {
	return set.Name + "-" + strconv.Itoa(int(number))
}

// splitName returns the name of the set and the number in the name of a machine.
func splitName(machine string) (set string, number int32, found bool) {
	at := strings.LastIndexByte(machine, '-')
	if at < 1 {
		return "", 0, false
	}
	n, err := strconv.ParseInt(machine[at+1:], 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != machine[at+1:] {
		return "", 0, false
	}
	return machine[:at], int32(n), true
}

// replicas returns spec.replicas or its default.
func replicas(set *v1alpha1.VirtualMachineSet) int32 { return ptr.Deref(set.Spec.Replicas, 1) }

// maxUnavailable returns how many machines may be unavailable during an update: at least one, or no update would end.
func maxUnavailable(set *v1alpha1.VirtualMachineSet) int32 {
	given := set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable
	if given == nil {
		return 1
	}
	if given.Type == intstr.Int {
		return max(given.IntVal, 1)
	}
	number, err := intstr.GetScaledValueFromIntOrPercent(given, int(replicas(set)), false)
	if err != nil {
		return 1 // the API rejects it
	}
	return max(int32(number), 1) //nolint:gosec // at most the number of replicas
}

// templateHash returns a hash of the template. A new default of a later version changes it; the machines then get a new label,
// and have the default already.
func templateHash(set *v1alpha1.VirtualMachineSet) string {
	return backend.Sum(set.Spec.Template)[:10]
}

// selector returns the labels that select the machines of a set.
func selector(set *v1alpha1.VirtualMachineSet) map[string]string {
	return map[string]string{v1alpha1.LabelSet: set.Name}
}

// selectorText returns the selector in the format of the scale subresource.
func selectorText(set *v1alpha1.VirtualMachineSet) string {
	return labels.SelectorFromSet(selector(set)).String()
}

// newMachine returns the machine with that number.
func newMachine(set *v1alpha1.VirtualMachineSet, number int32, hash string) *v1alpha1.VirtualMachine {
	machine := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{
		Namespace: set.Namespace, Name: machineName(set, number),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, kind)},
	}}
	applyTemplate(set, machine, hash)
	machine.Annotations[v1alpha1.AnnotationStartedTemplateHash] = hash
	return machine
}

// applyTemplate gives a machine the labels, annotations and spec of the template. What others add to its labels and annotations
// stays, and so do the requests in its spec, unless the template makes its own.
func applyTemplate(set *v1alpha1.VirtualMachineSet, machine *v1alpha1.VirtualMachine, hash string) {
	template := set.Spec.Template.DeepCopy()
	machine.Labels = merged(machine.Labels, template.Metadata.Labels, selector(set), map[string]string{v1alpha1.LabelTemplateHash: hash})
	machine.Annotations = merged(machine.Annotations, template.Metadata.Annotations)
	spec := template.Spec
	spec.Disks = append(spec.Disks, ownDisks(set, machine.Name)...)
	if spec.RestartRequestedAt == nil {
		spec.RestartRequestedAt = machine.Spec.RestartRequestedAt
	}
	if spec.WakeRequestedAt == nil {
		spec.WakeRequestedAt = machine.Spec.WakeRequestedAt
	}
	if spec.Restore == nil {
		spec.Restore = machine.Spec.Restore
	}
	machine.Spec = spec
}

// merged returns the entries of all maps; later ones win.
func merged(all ...map[string]string) map[string]string {
	result := map[string]string{}
	for _, entries := range all {
		maps.Copy(result, entries)
	}
	return result
}

// ownDisks returns the disks of a machine for spec.virtualDiskTemplates.
func ownDisks(set *v1alpha1.VirtualMachineSet, machine string) []v1alpha1.Disk {
	var disks []v1alpha1.Disk
	for _, template := range set.Spec.VirtualDiskTemplates {
		disks = append(disks, v1alpha1.Disk{Name: template.Name, VirtualDisk: template.Name + "-" + machine, DeletePolicy: v1alpha1.DiskDelete})
	}
	return disks
}

// newDisks returns the VirtualDisks of a machine. They have no owner reference, because they outlive the machine and the set.
func newDisks(set *v1alpha1.VirtualMachineSet, machine string) []*v1alpha1.VirtualDisk {
	var disks []*v1alpha1.VirtualDisk
	for _, template := range set.Spec.VirtualDiskTemplates {
		disks = append(disks, &v1alpha1.VirtualDisk{
			ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: template.Name + "-" + machine, Labels: selector(set)},
			Spec:       *template.Spec.DeepCopy(),
		})
	}
	return disks
}

// immutable returns the fields in which a spec differs from that of a machine, and which a VirtualMachine cannot change: those
// with a rule about oldSelf in its definition. A disk that is added or removed is no such field.
func immutable(machine, wanted *v1alpha1.VirtualMachineSpec) []string {
	var fields []string
	add := func(differs bool, field string) {
		if differs && !slices.Contains(fields, field) {
			fields = append(fields, field)
		}
	}
	add(!equality.Semantic.DeepEqual(machine.Image, wanted.Image), "image")
	add(machine.Driver != wanted.Driver, "driver")
	was, now := ptr.Deref(machine.Pod, v1alpha1.VirtualMachinePod{}), ptr.Deref(wanted.Pod, v1alpha1.VirtualMachinePod{})
	add(was.StorageClassName != now.StorageClassName, "pod.storageClassName")
	add((was.Storage == v1alpha1.StorageEphemeral) != (now.Storage == v1alpha1.StorageEphemeral), "pod.storage")
	add(shrinks(machine.Resource.RootDisk, wanted.Resource.RootDisk), "resource.rootDisk")
	for _, disk := range wanted.Disks {
		i := slices.IndexFunc(machine.Disks, func(d v1alpha1.Disk) bool { return d.Name == disk.Name })
		if i < 0 {
			continue
		}
		was := machine.Disks[i]
		add(!equality.Semantic.DeepEqual(was.Image, disk.Image) || was.VirtualDisk != disk.VirtualDisk || shrinks(was.Size, disk.Size), "disks")
	}
	return fields
}

// shrinks reports whether a size is removed or made smaller.
func shrinks(from, to *resource.Quantity) bool {
	return from != nil && (to == nil || to.Cmp(*from) < 0)
}
