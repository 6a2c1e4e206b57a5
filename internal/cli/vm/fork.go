package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

func newFork(flags *target.Flags) *cobra.Command {
	var waits object.Waiting
	var output object.Output
	var name, snapshot string
	var number int
	var memory bool
	cmd := &cobra.Command{
		Use:   "fork NAME",
		Short: "Clone a machine",
		Long: `Create a new machine, or with --number several, with the spec of a machine and copies of its disks, as they are now
or in a snapshot. Each boots with its own name, address and keys. VirtualDisks stay with their machine.

Without --snapshot, the command takes a snapshot and waits until the new machines have their disks. Then it deletes
the snapshot. With --memory, or a snapshot with memory, the new machines do not boot: the programs of the machine
resume in each of them. Only the default guest supports that.`,
		Example: `  keelson vm fork web --name web-2 --wait
  keelson vm fork web --name web-3 --snapshot before
  keelson vm fork web --name worker --number 10 --memory
  keelson vm fork web --name web-4 --snapshot before --dry-run=client -o yaml`,
		Args: oneMachine(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if memory && snapshot != "" {
				return usage.Errorf("--memory cannot be used with --snapshot, which has memory or has none")
			}
			if err := output.Validate(); err != nil {
				return err
			}
			names, err := forkNames(name, number, cmd.Flags().Changed("number"))
			if err != nil {
				return err
			}
			m, err := open(cmd.Context(), flags)
			if err != nil {
				return err
			}
			if err := m.fork(cmd, args[0], names, snapshot, memory, waits.Timeout, &output); err != nil || !output.Waits(&waits) {
				return err
			}
			return m.Until(cmd.Context(), waits.Timeout, cmd.ErrOrStderr(), machineKind.When(isReady), names...)
		},
	}
	output.AddFlags(cmd.Flags())
	cmd.Flags().StringVar(&name, "name", "", "`name` of the new machine")
	cmd.Flags().IntVar(&number, "number", 1, "make this `number` of machines, and add -1, -2 and so on to the name")
	cmd.Flags().StringVar(&snapshot, "snapshot", "", "`name` of a VirtualMachineSnapshot (default: one is taken)")
	cmd.Flags().BoolVar(&memory, "memory", false, "the new machines resume with the memory of the machine instead of booting")
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
// have their disks, unless output is for a dry run.
func (m *machines) fork(cmd *cobra.Command, of string, names []string, snapshot string, memory bool, timeout time.Duration, output *object.Output) error {
	ctx := cmd.Context()
	source, err := m.Find(ctx, of)
	if err != nil {
		return err
	}
	if snapshot != "" {
		if _, err := m.findSnapshot(ctx, snapshot); err != nil {
			return err
		}
		_, err := m.createForks(ctx, cmd.OutOrStdout(), source, names, snapshot, output)
		return err
	}
	taken := newMachineSnapshot(source.Name, "", memory, time.Now())
	if !output.Writes() {
		_, err := m.createForks(ctx, cmd.OutOrStdout(), source, names, taken.Name, output)
		return err
	}
	if err := m.snapshots().CreateNew(ctx, taken, output); err != nil {
		return err
	}
	if err := object.Until(ctx, timeout, cmd.ErrOrStderr(), func(ctx context.Context) (bool, string, error) { return m.isForkable(ctx, taken.Name) }); err != nil {
		return errors.Join(err, m.deleteSnapshot(context.WithoutCancel(ctx), taken.Name)) // nothing is made of it
	}
	created, err := m.createForks(ctx, cmd.OutOrStdout(), source, names, taken.Name, output)
	if waitErr := m.Until(ctx, timeout, cmd.ErrOrStderr(), machineKind.When(isCreated), created...); waitErr != nil {
		// New machines may still be made of it.
		return fmt.Errorf("%w. The snapshot %s is kept; when the machines have their disks, delete it: keelson vm snapshot delete %[2]s --namespace %[3]s",
			errors.Join(err, waitErr), taken.Name, m.API.Namespace)
	}
	return errors.Join(err, m.deleteSnapshot(ctx, taken.Name))
}

// isForkable reports whether a snapshot is taken. It fails if that needs a request of the user.
func (m *machines) isForkable(ctx context.Context, name string) (bool, string, error) {
	s, err := m.findSnapshot(ctx, name)
	if err != nil {
		return false, "", err
	}
	ready := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
	if ready != nil && slices.Contains([]string{v1alpha1.ReasonMachineNotRunning, v1alpha1.ReasonMachineMissing, v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonSnapshotLost}, ready.Reason) {
		return false, "", fmt.Errorf("VirtualMachine %s/%s cannot be forked: %s", m.API.Namespace, s.Spec.VirtualMachineName, ready.Message)
	}
	return isTaken(s), snapshotLine(s), nil
}

// createForks creates machines of a snapshot of another one until one cannot be created, and returns the names of those that
// were.
func (m *machines) createForks(ctx context.Context, out io.Writer, source *v1alpha1.VirtualMachine, names []string, snapshot string, output *object.Output) (created []string, err error) {
	for _, name := range names {
		fork := newForkOf(source, name, snapshot)
		if !output.DryRun() {
			if err := m.CreateNew(ctx, fork, output); err != nil {
				return created, err
			}
		}
		created = append(created, name)
		if err := machineKind.Print(out, fork, "created", output); err != nil {
			return created, err
		}
	}
	return created, nil
}

// deleteSnapshot deletes a snapshot.
func (m *machines) deleteSnapshot(ctx context.Context, name string) error {
	s := &v1alpha1.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: m.API.Namespace, Name: name}}
	if err := m.Delete(ctx, s); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete the snapshot %s/%s: %w", m.API.Namespace, name, err)
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
	vm.Spec.Action, vm.Spec.RestartRequestedAt, vm.Spec.WakeRequestedAt, vm.Spec.Restore = v1alpha1.ActionActive, nil, nil, nil
	vm.Spec.Image = &v1alpha1.Image{Snapshot: snapshot}
	vm.Spec.Disks = slices.DeleteFunc(vm.Spec.Disks, func(disk v1alpha1.Disk) bool { return disk.VirtualDisk != "" })
	for i := range vm.Spec.Disks {
		vm.Spec.Disks[i].Image = nil // the content comes from the snapshot
	}
	return vm
}
