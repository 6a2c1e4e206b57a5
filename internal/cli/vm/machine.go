package vm

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/instance"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

// machineFlags select the API and the namespace of a machine.
type machineFlags struct {
	target.Flags
	namespace string
}

func (f *machineFlags) addFlags(fs *pflag.FlagSet) {
	f.AddFlags(fs)
	fs.VarP(usage.NonEmpty(&f.namespace), "namespace", "n", "`namespace` of the machine (default: that of the context, otherwise default)")
}

// words returns arguments that select a machine with the same flags, quoted for a shell.
func (f *machineFlags) words(name string) string {
	words := f.Words(name)
	if f.namespace != "" {
		words += " --namespace=" + instance.Quote(f.namespace)
	}
	return words
}

// machines are the VirtualMachines of a namespace.
type machines struct {
	client.Client
	api       *target.API
	namespace string
}

// open connects to the API.
func (f *machineFlags) open(ctx context.Context) (*machines, error) {
	c, api, err := newClient(ctx, &f.Flags)
	if err != nil {
		return nil, err
	}
	return &machines{Client: c, api: api, namespace: cmp.Or(f.namespace, api.Namespace)}, nil
}

// get returns a machine.
func (m *machines) get(ctx context.Context, name string) (*v1alpha1.VirtualMachine, error) {
	var vm v1alpha1.VirtualMachine
	err := m.Get(ctx, client.ObjectKey{Namespace: m.namespace, Name: name}, &vm)
	if err != nil {
		return nil, m.describe(name, err)
	}
	return &vm, nil
}

// describe explains an error of a request for a machine.
func (m *machines) describe(name string, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no VirtualMachine %q in the namespace %s; keelson vm list --all-namespaces lists them", name, m.namespace)
	case meta.IsNoMatchError(err):
		return fmt.Errorf("%s has no VirtualMachines: their definition is not installed", m.api.Name)
	}
	return fmt.Errorf("VirtualMachine %s/%s: %w", m.namespace, name, err)
}

// taken returns the error of a create of a machine whose name exists already.
func (m *machines) taken(ctx context.Context, name string) error {
	vm := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: name}}
	return object.Taken(ctx, m, vm, fmt.Sprintf("VirtualMachine %s/%s", m.namespace, name), fmt.Sprintf("kubectl delete vm %s --namespace %s", name, m.namespace))
}

// beingDeleted returns the error for a machine that goes while a command needs it.
func beingDeleted(vm *v1alpha1.VirtualMachine) error {
	return fmt.Errorf("VirtualMachine %s/%s is being deleted", vm.Namespace, vm.Name)
}

// until waits until done returns true for all machines, and prints each change of the status of the first that is not done to
// progress.
func (m *machines) until(ctx context.Context, timeout time.Duration, progress io.Writer, done func(*v1alpha1.VirtualMachine) bool, names ...string) error {
	return object.Until(ctx, timeout, progress, func(ctx context.Context) (bool, string, error) {
		for _, name := range names {
			vm, err := m.get(ctx, name)
			if err != nil {
				return false, "", err
			}
			if !vm.DeletionTimestamp.IsZero() {
				return false, "", beingDeleted(vm)
			}
			if !done(vm) {
				return false, describeStatus(vm), nil
			}
		}
		return true, "", nil
	})
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
