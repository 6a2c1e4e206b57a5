package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

func newSnapshot() *cobra.Command {
	var flags machineFlags
	var waits object.Waiting
	var output object.Output
	var name string
	var memory bool
	var allowed []string
	cmd := &cobra.Command{
		Use:   "snapshot NAME",
		Short: "Take a snapshot of a machine",
		Long: `Take a snapshot of the disks of a machine, also while it runs. A new machine is made of it with
keelson vm fork --snapshot. It is kept when the machine is deleted; delete it with kubectl delete vmsnap.

With --memory, the snapshot also has the memory of the machine, which must run or be asleep. A machine that is made of
it, or restored from it, does not boot: it goes on from the moment of the snapshot.

With --allow-namespace, machines of other namespaces can be made of it, too. Whoever can create machines there can then
read all that is in the snapshot.`,
		Example: `  keelson vm snapshot web --name before --wait
  keelson vm fork web --snapshot before --name web-2 --wait
  keelson vm snapshot web --name running --memory --wait
  keelson vm snapshot web --name gold --allow-namespace team-a --allow-namespace team-b`,
		Args: oneMachine(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := output.Validate(); err != nil {
				return err
			}
			taken := newMachineSnapshot(args[0], name, memory, time.Now())
			taken.Spec.AllowedNamespaces = allowed
			if output.DryRun() {
				taken.Namespace = flags.namespace
				return printSnapshot(cmd.OutOrStdout(), &output, taken)
			}
			m, err := flags.open(cmd.Context())
			if err != nil {
				return err
			}
			if _, err := m.get(cmd.Context(), args[0]); err != nil {
				return err
			}
			if err := m.take(cmd.Context(), taken); err != nil {
				return err
			}
			if err := printSnapshot(cmd.OutOrStdout(), &output, taken); err != nil || !waits.Wait {
				return err
			}
			return object.Until(cmd.Context(), waits.Timeout, cmd.ErrOrStderr(), func(ctx context.Context) (bool, string, error) {
				return m.isTaken(ctx, taken.Name)
			})
		},
	}
	flags.addFlags(cmd.Flags())
	output.AddFlags(cmd.Flags())
	cmd.Flags().StringVar(&name, "name", "", "`name` of the VirtualMachineSnapshot (default: that of the machine, and the time)")
	cmd.Flags().BoolVar(&memory, "memory", false, "the snapshot also has the memory of the machine")
	cmd.Flags().StringArrayVar(&allowed, "allow-namespace", nil, "`namespace` whose machines may be made of the snapshot; may be repeated")
	waits.AddFlags(cmd.Flags(), "the snapshot is taken")
	return cmd
}

func printSnapshot(out io.Writer, output *object.Output, s *v1alpha1.VirtualMachineSnapshot) error {
	s.APIVersion, s.Kind = v1alpha1.SchemeGroupVersion.String(), "VirtualMachineSnapshot" // the client removes them
	return output.Print(out, s, "virtualmachinesnapshot", v1alpha1.GroupName)
}

// newMachineSnapshot returns the object. Without a name, it gets that of the machine and the time in UTC.
func newMachineSnapshot(machine, name string, memory bool, now time.Time) *v1alpha1.VirtualMachineSnapshot {
	if name == "" {
		name = machine + "-" + now.UTC().Format("20060102-150405")
	}
	return &v1alpha1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.VirtualMachineSnapshotSpec{VirtualMachineName: machine, Memory: memory},
	}
}

// take creates a snapshot.
func (m *machines) take(ctx context.Context, s *v1alpha1.VirtualMachineSnapshot) error {
	s.Namespace = m.namespace
	err := m.Create(ctx, s)
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("the namespace %s has a VirtualMachineSnapshot %s already; choose another name, or delete it: kubectl delete vmsnap %[2]s", m.namespace, s.Name)
	}
	if err != nil {
		return fmt.Errorf("VirtualMachineSnapshot %s/%s: %w", m.namespace, s.Name, err)
	}
	return nil
}

// isTaken reports whether a snapshot is taken, and describes its state.
func (m *machines) isTaken(ctx context.Context, name string) (bool, string, error) {
	var s v1alpha1.VirtualMachineSnapshot
	if err := m.Get(ctx, client.ObjectKey{Namespace: m.namespace, Name: name}, &s); err != nil {
		return false, "", fmt.Errorf("VirtualMachineSnapshot %s/%s: %w", m.namespace, name, err)
	}
	ready := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil {
		return false, name + ": Pending", nil
	}
	return ready.Status == metav1.ConditionTrue, fmt.Sprintf("%s: %s", name, ready.Message), nil
}

func newFork() *cobra.Command {
	var flags machineFlags
	var waits object.Waiting
	var name, snapshot string
	var number int
	var memory bool
	cmd := &cobra.Command{
		Use:   "fork NAME",
		Short: "Make new machines of a machine",
		Long: `Make a new machine, or with --number several, with the spec of a machine and copies of its disks, as they are now
or in a snapshot. Each boots with a name, an address and keys of its own. VirtualDisks stay with their machine.

Without --snapshot, the command takes a snapshot and waits until the new machines have their disks. Then it deletes
the snapshot. With --memory, or a snapshot with memory, the new machines do not boot: the programs of the machine go
on in each of them. Only the default guest can do that.`,
		Example: `  keelson vm fork web --name web-2 --wait
  keelson vm fork web --name web-3 --snapshot before
  keelson vm fork web --name worker --number 10 --memory`,
		Args: oneMachine(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if memory && snapshot != "" {
				return usage.Errorf("--memory cannot be used with --snapshot, which has memory or has none")
			}
			names, err := forkNames(name, number, cmd.Flags().Changed("number"))
			if err != nil {
				return err
			}
			m, err := flags.open(cmd.Context())
			if err != nil {
				return err
			}
			if err := m.fork(cmd, args[0], names, snapshot, memory, waits.Timeout); err != nil || !waits.Wait {
				return err
			}
			return m.until(cmd.Context(), waits.Timeout, cmd.ErrOrStderr(), isReady, names...)
		},
	}
	flags.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&name, "name", "", "`name` of the new machine")
	cmd.Flags().IntVar(&number, "number", 1, "make this `number` of machines, and add -1, -2 and so on to the name")
	cmd.Flags().StringVar(&snapshot, "snapshot", "", "`name` of a VirtualMachineSnapshot (default: one is taken)")
	cmd.Flags().BoolVar(&memory, "memory", false, "the new machines go on with the memory of the machine instead of booting")
	waits.AddFlags(cmd.Flags(), "the new machines are ready")
	return cmd
}

// maxForks limits the machines of one command.
const maxForks = 100

// forkNames returns the names of the new machines. If the number is given, it is part of the names.
func forkNames(name string, number int, given bool) ([]string, error) {
	switch {
	case name == "":
		return nil, usage.Errorf("--name is required: that of the new machine")
	case !given:
		return []string{name}, nil
	case number < 1 || number > maxForks:
		return nil, usage.Errorf("--number is %d; it must be from 1 to %d", number, maxForks)
	}
	var names []string
	for i := range number {
		names = append(names, fmt.Sprintf("%s-%d", name, i+1))
	}
	return names, nil
}

// fork makes new machines of a snapshot of another one. If that is not given, it takes one, which it deletes when the new machines
// have their disks.
func (m *machines) fork(cmd *cobra.Command, of string, names []string, snapshot string, memory bool, timeout time.Duration) error {
	ctx := cmd.Context()
	source, err := m.get(ctx, of)
	if err != nil {
		return err
	}
	if snapshot != "" {
		_, err := m.createForks(ctx, cmd.OutOrStdout(), source, names, snapshot)
		return err
	}
	taken := newMachineSnapshot(source.Name, "", memory, time.Now())
	if err := m.take(ctx, taken); err != nil {
		return err
	}
	created, err := m.createForks(ctx, cmd.OutOrStdout(), source, names, taken.Name)
	if waitErr := m.until(ctx, timeout, cmd.ErrOrStderr(), isCreated, created...); waitErr != nil {
		// New machines may still be made of it.
		return fmt.Errorf("%w. The snapshot %s is kept; when the machines have their disks, delete it: kubectl delete vmsnap %[2]s --namespace %[3]s",
			errors.Join(err, waitErr), taken.Name, m.namespace)
	}
	return errors.Join(err, m.deleteSnapshot(ctx, taken.Name))
}

// createForks creates machines of a snapshot of another one until one cannot be created, and returns the names of those that
// were.
func (m *machines) createForks(ctx context.Context, out io.Writer, source *v1alpha1.VirtualMachine, names []string, snapshot string) (created []string, err error) {
	for _, name := range names {
		err := m.Create(ctx, newForkOf(source, name, snapshot))
		if apierrors.IsAlreadyExists(err) {
			err = fmt.Errorf("the namespace %s has a VirtualMachine %s already; choose another name", m.namespace, name)
		}
		if err != nil {
			return created, err
		}
		created = append(created, name)
		if _, err := fmt.Fprintf(out, "virtualmachine/%s created\n", name); err != nil {
			return created, err
		}
	}
	return created, nil
}

// deleteSnapshot deletes a snapshot.
func (m *machines) deleteSnapshot(ctx context.Context, name string) error {
	s := &v1alpha1.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: name}}
	if err := m.Delete(ctx, s); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete the snapshot %s/%s: %w", m.namespace, name, err)
	}
	return nil
}

// isCreated reports whether a machine has its disks.
func isCreated(vm *v1alpha1.VirtualMachine) bool {
	return meta.IsStatusConditionTrue(vm.Status.Conditions, v1alpha1.ConditionCreated)
}

// newForkOf returns a new machine with the spec of another one, and the disks in a snapshot of that.
func newForkOf(source *v1alpha1.VirtualMachine, name, snapshot string) *v1alpha1.VirtualMachine {
	vm := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: source.Namespace, Name: name}, Spec: *source.Spec.DeepCopy()}
	vm.Spec.Action, vm.Spec.RestartedAt, vm.Spec.WokenAt, vm.Spec.Restore = v1alpha1.ActionActive, nil, nil, nil
	vm.Spec.Image = &v1alpha1.Image{Snapshot: snapshot}
	vm.Spec.Disks = slices.DeleteFunc(vm.Spec.Disks, func(disk v1alpha1.Disk) bool { return disk.VirtualDisk != "" })
	for i := range vm.Spec.Disks {
		vm.Spec.Disks[i].Image = nil // the content comes from the snapshot
	}
	return vm
}
