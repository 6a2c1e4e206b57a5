package vm

import (
	"fmt"
	"time"

	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/requests"
)

func action(a v1alpha1.Action) func(*v1alpha1.VirtualMachine, time.Time) {
	return func(vm *v1alpha1.VirtualMachine, _ time.Time) { vm.Spec.Action = a }
}

// wake makes a machine active. One that is asleep because of its schedule wakes, too, until its next time to sleep, and one that is
// asleep because it was idle until it is idle again.
func wake(vm *v1alpha1.VirtualMachine, now time.Time) {
	vm.Spec.Action = v1alpha1.ActionActive
	if vm.Spec.PowerSchedule != nil || vm.Spec.Idle != nil {
		vm.Spec.WakeRequestedAt = ptr.To(requests.Next(now, vm.Spec.WakeRequestedAt))
	}
}

// restart requests a restart.
func restart(vm *v1alpha1.VirtualMachine, now time.Time) {
	vm.Spec.RestartRequestedAt = ptr.To(requests.Next(now, vm.Status.LastRestartRequestedAt))
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
func verbs() []object.Verb[*v1alpha1.VirtualMachine] {
	verb := func(name, short, long, past string, change func(*v1alpha1.VirtualMachine, time.Time), until string, done func(*v1alpha1.VirtualMachine) bool,
	) object.Verb[*v1alpha1.VirtualMachine] {
		return object.Verb[*v1alpha1.VirtualMachine]{
			Name: name, Short: short, Long: long, Past: past, Change: change, Until: "the machines " + until, Look: machineKind.When(done),
			Example: fmt.Sprintf("  keelson vm %s web --wait\n  keelson vm %[1]s web db", name),
		}
	}
	return []object.Verb[*v1alpha1.VirtualMachine]{
		verb("start", "Start machines", "Power machines on.", "started", wake, "are ready", isReady),
		verb("stop", "Shut machines down", "Shut the guests down, and power the machines off after spec.terminationGracePeriodSeconds.",
			"stopping", action(v1alpha1.ActionStopped), "are off", is(v1alpha1.StatusStopped)),
		verb("pause", "Halt the processors of machines", "Halt the processors of running machines. They keep their memory.",
			"paused", action(v1alpha1.ActionPaused), "are paused", is(v1alpha1.StatusPaused)),
		verb("sleep", "Save the memory of machines and free their resources",
			"Save the memory of running machines to files of their host. The machines use neither memory nor processors until they wake.",
			"falling asleep", action(v1alpha1.ActionAsleep), "are asleep", is(v1alpha1.StatusAsleep)),
		verb("wake", "Wake machines that are asleep",
			"Wake machines that are asleep: they resume where they were. With spec.powerSchedule, they stay awake until the next time to sleep. "+
				"With spec.idle, they stay awake until they are idle again.", "waking", wake, "are ready", isReady),
		verb("resume", "Resume paused machines", "Resume paused machines.", "resumed", wake, "are ready", isReady),
		verb("restart", "Restart machines once", "Shut the guests down, and start them again with the current spec.", "restarting",
			restart, "have restarted and are ready", hasRestarted),
	}
}
