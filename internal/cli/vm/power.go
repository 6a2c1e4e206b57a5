package vm

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/kube"
)

// verb is a command that changes the power state of a machine.
type verb struct {
	name, short, long string
	// past is what was done, for the output.
	past string
	// change changes the spec.
	change func(vm *v1alpha1.VirtualMachine, now time.Time)
	// until is what --wait waits for, and done reports it.
	until string
	done  func(vm *v1alpha1.VirtualMachine) bool
}

func action(a v1alpha1.Action) func(*v1alpha1.VirtualMachine, time.Time) {
	return func(vm *v1alpha1.VirtualMachine, _ time.Time) { vm.Spec.Action = a }
}

// wake makes a machine active. One that is asleep because of its schedule wakes, too, until its next time to sleep, and one that is
// asleep because it was idle until it is idle again.
func wake(vm *v1alpha1.VirtualMachine, now time.Time) {
	vm.Spec.Action = v1alpha1.ActionActive
	if vm.Spec.PowerSchedule != nil || vm.Spec.Idle != nil {
		vm.Spec.WakeRequestedAt = ptr.To(kube.NextRequest(now, vm.Spec.WakeRequestedAt))
	}
}

// restart requests a restart.
func restart(vm *v1alpha1.VirtualMachine, now time.Time) {
	vm.Spec.RestartRequestedAt = ptr.To(kube.NextRequest(now, vm.Status.LastRestartRequestedAt))
}

// hasRestarted reports whether the requested restart is over.
func hasRestarted(vm *v1alpha1.VirtualMachine) bool {
	return isReady(vm) && vm.Status.PendingRestart == nil && vm.Status.LastRestartRequestedAt.Equal(vm.Spec.RestartRequestedAt)
}

func is(status v1alpha1.PrintableStatus) func(vm *v1alpha1.VirtualMachine) bool {
	return func(vm *v1alpha1.VirtualMachine) bool {
		return vm.Status.ObservedGeneration == vm.Generation && vm.Status.PrintableStatus == status
	}
}

// verbs are the commands for the power of a machine.
func verbs() []verb {
	return []verb{
		{"start", "Start a machine", "Power a machine on.", "started", wake, "is ready", isReady},
		{
			"stop", "Shut a machine down", "Shut the guest down, and power the machine off after spec.terminationGracePeriodSeconds.",
			"stopping", action(v1alpha1.ActionStopped), "is off", is(v1alpha1.StatusStopped),
		},
		{
			"pause", "Halt the processors of a machine", "Halt the processors of a running machine. It keeps its memory.",
			"paused", action(v1alpha1.ActionPaused), "is paused", is(v1alpha1.StatusPaused),
		},
		{
			"sleep", "Save the memory of a machine and free its resources",
			"Save the memory of a running machine to a file of its host. The machine uses neither memory nor processors until it wakes.",
			"falling asleep", action(v1alpha1.ActionAsleep), "is asleep", is(v1alpha1.StatusAsleep),
		},
		{
			"wake", "Let a machine that is asleep go on",
			"Let a machine that is asleep go on where it was. With spec.powerSchedule, it stays awake until the next time to sleep. " +
				"With spec.idle, it stays awake until it is idle again.", "waking",
			wake, "is ready", isReady,
		},
		{"resume", "Let a paused machine run again", "Let a paused machine run again.", "resumed", wake, "is ready", isReady},
		{
			"restart", "Restart a machine once", "Shut the guest down, and start it again with the present spec.", "restarting",
			restart, "has restarted and is ready", hasRestarted,
		},
	}
}

// newVerb returns the command of a verb.
func newVerb(v verb) *cobra.Command {
	var flags machineFlags
	var waits object.Waiting
	cmd := &cobra.Command{
		Use:     v.name + " NAME",
		Short:   v.short,
		Long:    v.long,
		Example: fmt.Sprintf("  keelson vm %s web --wait", v.name),
		Args:    oneMachine(),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := flags.open(cmd.Context())
			if err != nil {
				return err
			}
			if err := m.change(cmd.Context(), args[0], v.change); err != nil {
				return err
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "virtualmachine/%s %s\n", args[0], v.past); err != nil || !waits.Wait {
				return err
			}
			return m.until(cmd.Context(), waits.Timeout, cmd.ErrOrStderr(), v.done, args[0])
		},
	}
	flags.addFlags(cmd.Flags())
	waits.AddFlags(cmd.Flags(), "the machine "+v.until)
	return cmd
}

// change changes a machine.
func (m *machines) change(ctx context.Context, name string, change func(*v1alpha1.VirtualMachine, time.Time)) error {
	vm, err := m.get(ctx, name)
	if err != nil {
		return err
	}
	before := vm.DeepCopy()
	change(vm, time.Now())
	if err := m.Patch(ctx, vm, client.MergeFrom(before)); err != nil {
		return m.describe(name, err)
	}
	return nil
}
