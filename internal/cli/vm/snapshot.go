package vm

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/target"
)

func newSnapshot(flags *target.Flags) *cobra.Command {
	c := object.Creation[*v1alpha1.VirtualMachineSnapshot]{Until: snapshotKind.When(isTaken), Check: checkMachine}
	name, memory, allowed := "", false, []string(nil)
	cmd := &cobra.Command{
		Use:   "snapshot NAME",
		Short: "Take, list and delete snapshots of machines",
		Long: `Take a snapshot of the disks of a machine, also while it runs. keelson vm create --snapshot and keelson vm fork
--snapshot create machines from it. It is kept when the machine is deleted.

With --memory, the snapshot also contains the memory of the machine, which must run or be asleep. A machine that is created
from it, or restored from it, does not boot: it resumes at the moment of the snapshot.

With --allow-namespace, machines of other namespaces can be created from it, too. Users who can create machines there
can then read everything in the snapshot.`,
		Example: `  keelson vm snapshot web --name before --wait
  keelson vm fork web --snapshot before --name web-2 --wait
  keelson vm snapshot web --name running --memory --wait
  keelson vm snapshot web --name gold --allow-namespace team-a --allow-namespace team-b
  keelson vm snapshot list
  keelson vm snapshot delete before`,
		Args: oneMachine(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.Validate(); err != nil {
				return err
			}
			taken := newMachineSnapshot(args[0], name, memory, time.Now())
			taken.Spec.AllowedNamespaces = allowed
			return c.Create(cmd, flags, snapshotKind, taken)
		},
	}
	c.AddFlags(cmd.Flags())
	cmd.Flags().StringVar(&name, "name", "", "`name` of the VirtualMachineSnapshot (default: that of the machine, and the time)")
	cmd.Flags().BoolVar(&memory, "memory", false, "the snapshot also contains the memory of the machine")
	cmd.Flags().StringArrayVar(&allowed, "allow-namespace", nil, "`namespace` whose machines can be created from the snapshot; may be repeated")
	c.Waiting.AddFlags(cmd.Flags(), "the snapshot is taken")
	cmd.AddCommand(
		snapshotKind.NewList(flags, "List the snapshots of machines"), snapshotKind.NewDescribe(flags, "Show snapshots with their events"),
		snapshotKind.NewDelete(flags, object.Deletion[*v1alpha1.VirtualMachineSnapshot]{
			Short: "Delete snapshots of machines", Example: "  keelson vm snapshot delete before --wait",
		}),
	)
	return cmd
}

// checkMachine returns an error if the machine of a new snapshot does not exist.
func checkMachine(ctx context.Context, o *object.Objects[*v1alpha1.VirtualMachineSnapshot], s *v1alpha1.VirtualMachineSnapshot) error {
	_, err := machineKind.In(o.Client, o.API).Find(ctx, s.Spec.VirtualMachineName)
	return err
}

// newMachineSnapshot returns the object. Without a name, it gets that of the machine and the time in UTC.
func newMachineSnapshot(machine, name string, memory bool, now time.Time) *v1alpha1.VirtualMachineSnapshot {
	return &v1alpha1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: cmp.Or(name, object.TimedName(machine, now))},
		Spec:       v1alpha1.VirtualMachineSnapshotSpec{VirtualMachineName: machine, Memory: memory},
	}
}

// findSnapshot returns a snapshot that is not being deleted.
func (m *machines) findSnapshot(ctx context.Context, name string) (*v1alpha1.VirtualMachineSnapshot, error) {
	s, err := m.snapshots().Find(ctx, name)
	if err == nil && !s.DeletionTimestamp.IsZero() {
		return nil, fmt.Errorf("%s is being deleted", m.snapshots().Title(name))
	}
	return s, err
}

// isTaken reports whether a snapshot is taken.
func isTaken(s *v1alpha1.VirtualMachineSnapshot) bool {
	return meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionReady)
}

// snapshotLine describes the status of a snapshot in a line.
func snapshotLine(s *v1alpha1.VirtualMachineSnapshot) string {
	if ready := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		return s.Name + ": " + ready.Message
	}
	return s.Name + ": Pending"
}
