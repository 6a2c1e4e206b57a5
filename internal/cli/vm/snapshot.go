package vm

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/object"
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
		name = object.TimedName(machine, now)
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
		return object.Taken(ctx, m, s, fmt.Sprintf("VirtualMachineSnapshot %s/%s", m.namespace, s.Name), fmt.Sprintf("kubectl delete vmsnap %s --namespace %s", s.Name, m.namespace))
	}
	if err != nil {
		return fmt.Errorf("VirtualMachineSnapshot %s/%s: %w", m.namespace, s.Name, err)
	}
	return nil
}

// getSnapshot returns a snapshot that is not being deleted.
func (m *machines) getSnapshot(ctx context.Context, name string) (*v1alpha1.VirtualMachineSnapshot, error) {
	var s v1alpha1.VirtualMachineSnapshot
	err := m.Get(ctx, client.ObjectKey{Namespace: m.namespace, Name: name}, &s)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no VirtualMachineSnapshot %q in the namespace %s; kubectl get vmsnap --all-namespaces lists them", name, m.namespace)
	case err != nil:
		return nil, fmt.Errorf("VirtualMachineSnapshot %s/%s: %w", m.namespace, name, err)
	case !s.DeletionTimestamp.IsZero():
		return nil, fmt.Errorf("VirtualMachineSnapshot %s/%s is being deleted", m.namespace, name)
	}
	return &s, nil
}

// isTaken reports whether a snapshot is taken, and describes its state.
func (m *machines) isTaken(ctx context.Context, name string) (bool, string, error) {
	s, err := m.getSnapshot(ctx, name)
	if err != nil {
		return false, "", err
	}
	done, line := describeSnapshot(s)
	return done, line, nil
}

// describeSnapshot reports whether a snapshot is taken, and describes its state in a line.
func describeSnapshot(s *v1alpha1.VirtualMachineSnapshot) (isTaken bool, line string) {
	ready := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil {
		return false, s.Name + ": Pending"
	}
	return ready.Status == metav1.ConditionTrue, s.Name + ": " + ready.Message
}
