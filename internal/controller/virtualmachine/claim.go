package virtualmachine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
)

// finalizerSuffix follows the name of the driver in a finalizer. Because the finalizer contains
// the name, a single write records that there may be a server and which driver has it.
const finalizerSuffix = ".cloudnative.tw/server"

// errConflict means that a VirtualMachine names several drivers for its server.
var errConflict = errors.New("the object names different drivers for its machine")

// errOnAnotherHost means that the server is on another host.
var errOnAnotherHost = errors.New("the machine is not on this host")

// finalizersOf returns the finalizers of this controller. There is at most one, unless a user
// has edited them.
func finalizersOf(vm *v1alpha1.VirtualMachine) []string {
	var ours []string
	for _, finalizer := range vm.Finalizers {
		if strings.HasSuffix(finalizer, finalizerSuffix) {
			ours = append(ours, finalizer)
		}
	}
	return ours
}

func driverOfFinalizer(finalizer string) string {
	return strings.TrimSuffix(finalizer, finalizerSuffix)
}

// driverOf returns the driver of vm's server; usual is the default driver. Once there is a
// server, only the status decides: finalizers can be edited, and the default depends on the
// flags of the manager. spec.driver is immutable. The error is an errConflict if the
// finalizers name another driver.
func driverOf(vm *v1alpha1.VirtualMachine, usual string) (string, error) {
	recorded, finalizers := recordedDriver(vm), finalizersOf(vm)
	name := cmp.Or(recorded, vm.Spec.Driver)
	switch {
	case name == "" && len(finalizers) > 0:
		name = driverOfFinalizer(finalizers[0])
	case name == "":
		name = usual
	}
	right := name + finalizerSuffix
	wrong := slices.DeleteFunc(slices.Clone(finalizers), func(finalizer string) bool { return finalizer == right })
	if len(wrong) == 0 {
		return name, nil
	}
	return name, fmt.Errorf("%w: %s. Nothing is created, started or deleted until this is resolved: %s", errConflict,
		describeConflict(vm, finalizers), conflictAdvice(vm, right, wrong))
}

// describeConflict lists the drivers that an object names.
func describeConflict(vm *v1alpha1.VirtualMachine, finalizers []string) string {
	words := "metadata.finalizers contains " + strings.Join(finalizers, " and ")
	if vm.Spec.Driver != "" {
		words = "spec.driver is " + vm.Spec.Driver + ", " + words
	}
	if recorded := recordedDriver(vm); recorded != "" {
		words = "the status says " + recorded + ", " + words
	}
	return words
}

// conflictAdvice returns how to fix the finalizers.
func conflictAdvice(vm *v1alpha1.VirtualMachine, right string, wrong []string) string {
	remove := "remove the finalizer " + strings.Join(wrong, " and ")
	switch recorded := recordedDriver(vm); {
	case recorded == "" && vm.Spec.Driver == "":
		return "remove the finalizers of the drivers that do not have the machine"
	case slices.Contains(vm.Finalizers, right):
		return remove
	case vm.DeletionTimestamp.IsZero():
		return "replace the finalizer " + strings.Join(wrong, " and ") + " with " + right
	case recorded != "":
		// The API server accepts no new finalizer for an object that is being deleted.
		return remove + "; the machine is then deleted by its driver, which may keep the disk"
	}
	return remove
}

// recordedDriver returns the driver recorded in the status, or "" if there is none.
func recordedDriver(vm *v1alpha1.VirtualMachine) string {
	if vm.Status.Host == nil {
		return ""
	}
	return vm.Status.Host.Driver
}

// checkHost fails with an errOnAnotherHost if the status records a host other than the driver's.
func checkHost(vm *v1alpha1.VirtualMachine, here backend.Host) error {
	recorded := vm.Status.Host
	if recorded == nil || recorded.ID == here.ID || vm.Annotations[v1alpha1.AnnotationForgetHost] == recorded.ID {
		return nil
	}
	return fmt.Errorf("%w: it is on %s (%s), and this manager runs on %s (%s). Nothing is created, started or deleted here: "+
		"run the manager on that host. If the host or its machines are permanently lost, run: kubectl annotate --namespace %s vm %s %s=%s",
		errOnAnotherHost, recorded.Name, recorded.ID, here.Name, here.ID, vm.Namespace, vm.Name, v1alpha1.AnnotationForgetHost, recorded.ID)
}

// isClaimed reports whether the API records this driver and this host for the server.
func isClaimed(vm *v1alpha1.VirtualMachine, observed observation) bool {
	recorded := vm.Status.Host
	return len(finalizersOf(vm)) > 0 && recorded != nil && recorded.Driver == observed.name && recorded.ID == observed.host.ID
}

// claim adds the finalizer, which records that there may be a server and its driver. The status
// written afterwards records the host. Both precede the server, so that it is never lost, and
// the finalizer is added again if a user has removed it.
func (r *Reconciler) claim(ctx context.Context, vm *v1alpha1.VirtualMachine, observed observation, _ plan) error {
	if observed.server == nil {
		// Do not claim a machine that cannot be created yet.
		if _, err := r.seed(ctx, vm); err != nil {
			return err
		}
		if _, err := r.resolveImage(ctx, imageOf(vm), observed.name); err != nil {
			return err
		}
		if _, err := r.resolveSnapshot(ctx, vm, observed); err != nil {
			return err
		}
	}
	if len(finalizersOf(vm)) > 0 {
		return nil
	}
	return kube.AddFinalizer(ctx, r.Client, vm, observed.name+finalizerSuffix)
}
