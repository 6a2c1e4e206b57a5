package vm

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/complete"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

var (
	machineKind = object.Kind[*v1alpha1.VirtualMachine]{
		Name: "VirtualMachine", Command: "keelson vm", Resource: kindOf("virtualmachines", true), Columns: []string{"Address"},
		New: func() *v1alpha1.VirtualMachine { return &v1alpha1.VirtualMachine{} }, Types: v1alpha1.AddToScheme, Line: describeStatus,
	}
	snapshotKind = object.Kind[*v1alpha1.VirtualMachineSnapshot]{
		Name: "VirtualMachineSnapshot", Command: "keelson vm snapshot", Resource: kindOf("virtualmachinesnapshots", true),
		New: func() *v1alpha1.VirtualMachineSnapshot { return &v1alpha1.VirtualMachineSnapshot{} }, Types: v1alpha1.AddToScheme, Line: snapshotLine,
	}
	imageKind = object.Kind[*v1alpha1.VirtualMachineImage]{
		Name: "VirtualMachineImage", Command: "keelson vm image", Resource: kindOf("virtualmachineimages", false),
		New: func() *v1alpha1.VirtualMachineImage { return &v1alpha1.VirtualMachineImage{} }, Types: v1alpha1.AddToScheme, Line: imageLine,
	}
)

func kindOf(name string, namespaced bool) complete.Resource {
	return complete.Resource{GroupVersionResource: v1alpha1.SchemeGroupVersion.WithResource(name), Namespaced: namespaced}
}

// machines are the VirtualMachines of a namespace.
type machines struct {
	*object.Objects[*v1alpha1.VirtualMachine]
}

// open connects to the API.
func open(ctx context.Context, flags *target.Flags) (*machines, error) {
	o, err := machineKind.Open(ctx, flags)
	return &machines{o}, err
}

// snapshots are the VirtualMachineSnapshots of the namespace.
func (m *machines) snapshots() *object.Objects[*v1alpha1.VirtualMachineSnapshot] {
	return snapshotKind.In(m.Client, m.API)
}

// describeStatus returns the status of a machine in a line.
func describeStatus(vm *v1alpha1.VirtualMachine) string {
	line := vm.Name + ": " + cmp.Or(string(vm.Status.PrintableStatus), "Pending")
	ready := meta.FindStatusCondition(vm.Status.Conditions, v1alpha1.ConditionReady)
	if ready != nil && ready.Status != metav1.ConditionTrue && ready.Message != "" {
		line += ": " + ready.Message
	}
	return line
}

// isReady reports whether the status of a machine is that of its spec, and Ready is True.
func isReady(vm *v1alpha1.VirtualMachine) bool {
	ready := meta.FindStatusCondition(vm.Status.Conditions, v1alpha1.ConditionReady)
	return ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == vm.Generation
}

// oneMachine is the arguments of a command for one machine.
func oneMachine() cobra.PositionalArgs {
	return usage.OneArg("NAME", "the VirtualMachine")
}
