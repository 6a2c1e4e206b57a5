package virtualmachine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
)

// finalizerSuffix is the part of a finalizer behind the name of the driver. With the
// name in it, one write says both that there may be a server, and where.
const finalizerSuffix = ".cloudnative.tw/server"

// errConflict says that a VirtualMachine names several drivers for its server.
var errConflict = errors.New("the object names different drivers for its server")

// errElsewhere says that another host has the server.
var errOnAnotherHost = errors.New("the server is not on this host")

// finalizersOf returns the finalizers of this controller. There is one at most, unless
// somebody has edited them.
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

// driverOf returns the driver that has, or is to have, the server of vm; usual is that of
// machines that name none. Once there is a server, only the status decides: finalizers can
// be edited, and the default changes with the flags of the manager. spec.driver cannot be
// changed. The error is an errConflict if the finalizers name another driver.
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
	return name, fmt.Errorf("%w: %s. Nothing is created, started or deleted until that is settled: %s", errConflict,
		describeConflict(vm, finalizers), conflictAdvice(vm, right, wrong))
}

// conflictWords says which drivers an object names.
func describeConflict(vm *v1alpha1.VirtualMachine, finalizers []string) string {
	words := "metadata.finalizers has " + strings.Join(finalizers, " and ")
	if vm.Spec.Driver != "" {
		words = "spec.driver is " + vm.Spec.Driver + ", " + words
	}
	if recorded := recordedDriver(vm); recorded != "" {
		words = "the status says " + recorded + ", " + words
	}
	return words
}

// conflictAdvice says what to do about finalizers that are wrong where another is right.
func conflictAdvice(vm *v1alpha1.VirtualMachine, right string, wrong []string) string {
	remove := "remove the finalizer " + strings.Join(wrong, " and ")
	switch recorded := recordedDriver(vm); {
	case recorded == "" && vm.Spec.Driver == "":
		return "remove the finalizers of the drivers that do not have the server"
	case slices.Contains(vm.Finalizers, right):
		return remove
	case vm.DeletionTimestamp.IsZero():
		return "replace the finalizer " + strings.Join(wrong, " and ") + " by " + right
	case recorded != "":
		// An object that is being deleted takes no new finalizer.
		return remove + "; the server is then deleted by its driver, which may keep the disk"
	}
	return remove
}

// notedDriver returns the driver that has the server according to the status, "" if that does not say.
func recordedDriver(vm *v1alpha1.VirtualMachine) string {
	switch {
	case vm.Status.Host != nil:
		return vm.Status.Host.Driver
	case vm.Status.Server != nil:
		return vm.Status.Server.Driver
	}
	return ""
}

// checkHost fails with an errElsewhere if the status notes another host than that of the driver.
func checkHost(vm *v1alpha1.VirtualMachine, here backend.Host) error {
	recorded := vm.Status.Host
	if recorded == nil || recorded.ID == here.ID || vm.Annotations[v1alpha1.AnnotationForgetHost] == recorded.ID {
		return nil
	}
	return fmt.Errorf("%w: it is on %s (%s), and this manager works on %s (%s). Nothing is created, started or deleted here: "+
		"run the manager on that host. If the host, or what it kept of its machines, is gone for good: kubectl annotate --namespace %s vm %s %s=%s",
		errOnAnotherHost, recorded.Name, recorded.ID, here.Name, here.ID, vm.Namespace, vm.Name, v1alpha1.AnnotationForgetHost, recorded.ID)
}

// checkLost fails with an errElsewhere if the status has a server of which this host knows nothing, and notes no host:
// the manager that made it did not write that down. A server that is found is adopted instead.
func checkUnrecordedHost(vm *v1alpha1.VirtualMachine, here backend.Host) error {
	if vm.Status.Host != nil || vm.Status.Server == nil || vm.Annotations[v1alpha1.AnnotationForgetHost] == v1alpha1.UnknownHost {
		return nil
	}
	return fmt.Errorf("%w: an earlier version of the manager has created the server %s and not written down where, and %s (%s) does not have it. "+
		"Nothing is created, started or deleted here: run the manager on the host that has it. If it is gone for good: kubectl annotate --namespace %s vm %s %s=%s",
		errOnAnotherHost, vm.Status.Server.ID, here.Name, here.ID, vm.Namespace, vm.Name, v1alpha1.AnnotationForgetHost, v1alpha1.UnknownHost)
}

// isClaimed reports whether the API says that the driver has the server, and on this host.
func isClaimed(vm *v1alpha1.VirtualMachine, observed observation) bool {
	recorded := vm.Status.Host
	return len(finalizersOf(vm)) > 0 && recorded != nil && recorded.Driver == observed.name && recorded.ID == observed.host.ID
}

// claim makes the API say that there may be a server, which driver has it, and on which
// host, the latter with the status. That comes before the server, so that it is never
// lost, and again if somebody has removed it.
func (r *Reconciler) claim(ctx context.Context, vm *v1alpha1.VirtualMachine, observed observation) error {
	if observed.server == nil {
		// A machine that cannot be made yet is not claimed either.
		if _, err := r.seed(ctx, vm); err != nil {
			return err
		}
	}
	if len(finalizersOf(vm)) > 0 {
		return nil
	}
	before := vm.DeepCopy()
	vm.Finalizers = append(vm.Finalizers, observed.name+finalizerSuffix)
	// With the lock, an object that is out of date gets no server.
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, vm, patch, client.FieldOwner(kube.FieldManager)); err != nil {
		return fmt.Errorf("add the finalizer: %w", err)
	}
	return nil
}
