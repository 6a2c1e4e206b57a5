package vm

import (
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	commonv1 "github.com/keelson-dev/keelson/api/common/v1"
	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

func newRestore(flags *target.Flags) *cobra.Command {
	var snapshot string
	var requested metav1.Time
	keep := true
	cmd := machineKind.NewVerb(flags, object.Verb[*v1alpha1.VirtualMachine]{
		Name: "restore", One: true,
		Short: "Replace the disks of a machine by those of a snapshot",
		Long: `Replace the disks of a machine with those of one of its snapshots. The machine is shut down for that, and
starts again if it should run; its name, addresses and ports stay as they are. A snapshot of the current disks
is taken first; its name is in status.restore.previous of the VirtualMachine: restore that one to undo the restore.`,
		Example: `  keelson vm restore web --snapshot before --wait

  # Without a snapshot of the current disks
  keelson vm restore web --snapshot before --keep-current=false`,
		Past: "restore requested",
		Change: func(vm *v1alpha1.VirtualMachine, now time.Time) {
			vm.Spec.Restore = object.NewRestore(snapshot, keep, now, vm.Spec.Restore, vm.Status.Restore)
			requested = vm.Spec.Restore.RequestedAt
		},
		Until: "the machine is restored and ready",
		Look:  func(vm *v1alpha1.VirtualMachine) (bool, string, error) { return isRestored(vm, requested) },
	})
	cmd.Use = "restore NAME --snapshot SNAPSHOT"
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if snapshot == "" {
			return usage.Errorf("--snapshot is required: the name of a VirtualMachineSnapshot of the machine, see keelson vm snapshot list")
		}
		return nil
	}
	cmd.Flags().StringVar(&snapshot, "snapshot", "", "`name` of a VirtualMachineSnapshot of the machine")
	cmd.Flags().BoolVar(&keep, "keep-current", true, "take a VirtualMachineSnapshot of the current disks first")
	return cmd
}

// isRestored reports whether a restore is done and the machine is ready, otherwise what it waits for. It fails when the restore has
// failed. A machine that should not run, or stays off because of its schedule or restart policy, is done when it is restored.
func isRestored(vm *v1alpha1.VirtualMachine, requested metav1.Time) (bool, string, error) {
	r := object.Restore{Noun: "machine", Name: vm.Name, Generation: vm.Generation, Conditions: vm.Status.Conditions}
	if done := vm.Status.Restore; done != nil && done.RequestedAt.Equal(&requested) {
		r.Ended, r.Failed, r.Message = true, done.Result == commonv1.RestoreFailed, done.Message
	}
	staysOff := vm.Spec.Action != v1alpha1.ActionActive || vm.Status.PrintableStatus == v1alpha1.StatusStopped
	if r.Ended && !r.Failed && staysOff {
		return true, "", nil
	}
	return r.IsComplete()
}
