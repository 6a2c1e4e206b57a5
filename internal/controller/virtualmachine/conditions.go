package virtualmachine

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
)

// creatingMessage is the message of Ready while a server is being created and reports no progress.
const creatingMessage = "The machine is being created"

// restoringMessage is the message of Ready while the disks of a machine are being replaced.
const restoringMessage = "The machine is being restored from a snapshot"

// newCondition returns a condition without the fields that summarize sets for all conditions.
func newCondition(name string, status metav1.ConditionStatus, reason, message string, args ...any) metav1.Condition {
	return metav1.Condition{Type: name, Status: status, Reason: reason, Message: kube.Sentence(fmt.Sprintf(message, args...))}
}

// requested returns Ready of a machine that is at rest, as requested.
func requested(reason, message string, args ...any) metav1.Condition {
	return newCondition(v1alpha1.ConditionReady, metav1.ConditionTrue, reason, message, args...)
}

// summarizeGuest returns the condition GuestReady. It differs from Ready only for a machine that is at rest, as requested.
func summarizeGuest(ready metav1.Condition) metav1.Condition {
	guest := ready
	guest.Type = v1alpha1.ConditionGuestReady
	if ready.Status == metav1.ConditionTrue && ready.Reason != v1alpha1.ReasonGuestReady && ready.Reason != v1alpha1.ReasonRunning {
		guest.Status = metav1.ConditionFalse
	}
	return guest
}

// summarizeSynchronized returns the condition Synchronized: whether the driver has the present spec.
func summarizeSynchronized(vm *v1alpha1.VirtualMachine, observed observation, p plan, f failure, actErr error) metav1.Condition {
	is := func(status metav1.ConditionStatus, reason, message string, args ...any) metav1.Condition {
		return newCondition(v1alpha1.ConditionSynchronized, status, reason, message, args...)
	}
	server := observed.server
	switch {
	case actErr != nil && isRefused(f):
		return is(metav1.ConditionFalse, string(f), "%v", actErr)
	case p.action == reconfigure && f == otherFailure:
		return is(metav1.ConditionFalse, v1alpha1.ReasonChangeFailed, "%v. Keelson retries", actErr)
	case p.power.invalid != nil:
		return is(metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec, "%v", p.power.invalid)
	case observed.err != nil, server == nil, server.State == backend.StateAbsent:
		return is(metav1.ConditionUnknown, v1alpha1.ReasonUnknown, "There is no machine")
	case server.Hash == hash(&vm.Spec), p.action == reconfigure && actErr == nil:
		return is(metav1.ConditionTrue, v1alpha1.ReasonSpecApplied, "The driver %s has applied the current spec", observed.name)
	case server.State == backend.StateAsleep:
		return is(metav1.ConditionUnknown, v1alpha1.ReasonChangePending, "The spec is applied when the machine is awake")
	}
	return is(metav1.ConditionUnknown, v1alpha1.ReasonChangePending, "The spec is applied after the operation in progress, see Ready")
}

// summarizeReady returns the condition Ready. That a change of the spec cannot be applied says nothing about the machine, see summarizeSynchronized.
func summarizeReady(vm *v1alpha1.VirtualMachine, observed observation, p plan, status *v1alpha1.VirtualMachineStatus, f failure, actErr error) metav1.Condition {
	not := func(reason, message string, args ...any) metav1.Condition {
		return newCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, reason, message, args...)
	}
	if !vm.DeletionTimestamp.IsZero() {
		return readyWhileTerminating(observed, f, actErr, not)
	}
	err := actErr
	if err == nil {
		err = observed.err
	}
	if p.action == reconfigure && (isRefused(f) || f == otherFailure) {
		f = noFailure
	}
	switch f {
	case backendUnavailable:
		return newCondition(v1alpha1.ConditionReady, metav1.ConditionUnknown, v1alpha1.ReasonBackendUnavailable,
			"The state of the machine is unknown: %v. Keelson retries, and creates nothing in the meantime", err)
	case driverConflict, onAnotherHost:
		return newCondition(v1alpha1.ConditionReady, metav1.ConditionUnknown, string(f), "%v", err)
	case invalidSpec, driverMissing, secretMissing, imageMissing, imageNotReady:
		return not(string(f), "%v", err)
	case otherFailure:
		if isFailedAttempt(p, f) {
			return not(actions[p.action].failed, "%v. The next attempt is at %s", err, timestamp(status.StartFailure.RetryAfter.Time))
		}
		if p.action == claim && observed.server == nil {
			return not(v1alpha1.ReasonCreateFailed, "%v. Keelson retries", err)
		}
		return not(v1alpha1.ReasonPowerFailed, "%v. Keelson retries", err)
	}
	return readyByProbe(observed, readyByPlan(vm, observed.server, p, not), not)
}

// readyWhileTerminating returns Ready during a deletion.
func readyWhileTerminating(observed observation, f failure, actErr error, not func(string, string, ...any) metav1.Condition) metav1.Condition {
	switch {
	case f == driverConflict, f == onAnotherHost:
		return not(string(f), "The deletion waits: %v", observed.err)
	case f == driverMissing, f == backendUnavailable && actErr == nil:
		return not(v1alpha1.ReasonDeleteFailed, "The deletion waits for the backend: %v", observed.err)
	case f != noFailure:
		return not(v1alpha1.ReasonDeleteFailed, "The machine could not be deleted: %v. Keelson retries", actErr)
	case observed.server != nil && observed.server.Task == backend.TaskDelete && observed.server.Progress != "":
		return not(v1alpha1.ReasonTerminating, "The machine is being deleted: %s", observed.server.Progress)
	}
	return not(v1alpha1.ReasonTerminating, "The machine is being stopped and deleted")
}

// readyByPlan returns Ready when this reconcile had no failure.
func readyByPlan(vm *v1alpha1.VirtualMachine, server *backend.Server, p plan, not func(string, string, ...any) metav1.Condition) metav1.Condition {
	does := actions[p.action]
	switch p.action {
	case claim:
		if server == nil {
			return not(v1alpha1.ReasonCreating, creatingMessage)
		}
	case stop:
		if server.State == backend.StateUnknown {
			does.message += ", although its state is unknown: " + server.Message
		}
	case sleep:
		if does.message += p.power.by; server.State == backend.StateAsleep {
			does.reason = "" // only the options of its sleep change
		}
	case recordEnd, backOff:
		return readyAfterEnd(server, p, not)
	case leaveStopped:
		is := not
		if server.Ended.Cause == backend.CauseGuestShutdown {
			is = requested
		}
		return is(v1alpha1.ReasonGuestStopped, "%s. spec.restartPolicy is %s; set spec.restartRequestedAt to start it again",
			describeEnd(server.Ended), vm.Spec.RestartPolicy)
	case unreachable:
		return newCondition(v1alpha1.ConditionReady, metav1.ConditionUnknown, v1alpha1.ReasonBackendUnavailable,
			"The state of the machine is unknown: %s. Keelson retries, and creates nothing in the meantime", server.Message)
	}
	if does.reason != "" {
		return not(does.reason, "%s", does.message)
	}
	return readyByServer(p.power, server, not)
}

// readyByProbe returns Ready of a machine that ready says everything about but its network and its probe.
func readyByProbe(observed observation, ready metav1.Condition, not func(string, string, ...any) metav1.Condition) metav1.Condition {
	if ready.Status != metav1.ConditionTrue || observed.server.State != backend.StateRunning {
		return ready
	}
	switch server, probe := observed.server, observed.probe; {
	case server.NetworkError != "":
		return not(v1alpha1.ReasonNetworkFailed, "The machine is running, but its network does not work: %s. Keelson retries", server.NetworkError)
	case probe.result == probing:
		return not(v1alpha1.ReasonProbing, "The machine is running, but its readiness probe has not succeeded yet: %s", probe.why)
	case probe.result == probeFailed:
		return not(v1alpha1.ReasonProbeFailed, "The machine is running, but its readiness probe fails: %s", probe.why)
	case probe.result == probeSucceeded:
		return newCondition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonGuestReady, "The readiness probe has succeeded")
	}
	return ready
}

// readyAfterEnd returns Ready after the end of a run or of an attempt to create or start the server.
func readyAfterEnd(server *backend.Server, p plan, not func(string, string, ...any) metav1.Condition) metav1.Condition {
	reason, what := v1alpha1.ReasonBackOff, "The last attempt failed"
	if server == nil || server.State == backend.StateAbsent {
		reason = v1alpha1.ReasonCreateFailed
	}
	if server != nil && server.Ended != nil {
		what = describeEnd(server.Ended)
	}
	if !p.nextAttempt.After(p.now) {
		return not(v1alpha1.ReasonStarting, "%s. The machine is being started again", what)
	}
	return not(reason, "%s. The next attempt is at %s", what, timestamp(p.nextAttempt))
}

// describeEnd describes how a run or an attempt ended.
func describeEnd(ended *backend.Ended) string {
	words := map[backend.Cause]string{
		backend.CauseRequested:     "The machine was stopped",
		backend.CauseGuestShutdown: "The guest powered itself off",
		backend.CauseGuestPanic:    "The guest's kernel crashed",
		backend.CauseHost:          "The machine was killed from outside",
		backend.CauseError:         "The machine failed",
		backend.CauseCreateFailed:  "The machine could not be created",
		backend.CauseStartFailed:   "The machine could not be started",
		backend.CauseMemoryLost:    "The machine boots from its disk, because its memory is lost",
	}[ended.Cause]
	if ended.Message != "" {
		words += ": " + ended.Message
	}
	return words
}

// readyByServer returns Ready according to the state of the server.
func readyByServer(p power, server *backend.Server, not func(string, string, ...any) metav1.Condition) metav1.Condition {
	progress := func(otherwise string) string {
		if server.Progress != "" {
			return otherwise + ": " + server.Progress
		}
		return otherwise
	}
	switch {
	case server.Blocked != nil && server.Blocked.Unschedulable:
		return not(v1alpha1.ReasonUnschedulable, "No node can take the machine: %s. It starts when one can: add or free resources, or change spec.resource or "+
			"spec.pod.template", strings.TrimRight(server.Blocked.Message, ". "))
	case server.Task == backend.TaskCreate:
		return not(v1alpha1.ReasonCreating, "%s", progress(creatingMessage))
	case server.Task == backend.TaskStart && server.Blocked != nil:
		return not(v1alpha1.ReasonPowerFailed, "The machine could not be started: %s. It is retried", strings.TrimRight(server.Blocked.Message, ". "))
	case server.Task == backend.TaskStart:
		return not(v1alpha1.ReasonStarting, "%s", progress("The machine is being started"))
	case server.Task == backend.TaskRestore:
		return not(v1alpha1.ReasonRestoring, "%s", progress(restoringMessage))
	case server.Task == backend.TaskSleep:
		return not(v1alpha1.ReasonFallingAsleep, "%s", progress("The memory of the machine is being saved, as requested by "+p.by))
	case server.Task != backend.TaskNone:
		return not(v1alpha1.ReasonStopping, "%s", progress("The machine is being stopped"))
	case server.State == backend.StateStopped && p.wanted == v1alpha1.ActionStopped:
		return requested(v1alpha1.ReasonStopped, "The machine is stopped, as requested by spec.action")
	case server.State == backend.StateStopped && p.wanted == v1alpha1.ActionAsleep:
		return requested(v1alpha1.ReasonStopped, "The machine is off, so it has no memory to save. It boots %s", p.whenAwake())
	case server.State == backend.StateAsleep && p.wanted == v1alpha1.ActionAsleep:
		return requested(v1alpha1.ReasonAsleep, "The machine is asleep, as requested by %s. It wakes %s", p.by, p.whenAwake())
	case server.State == backend.StateStopped, server.State == backend.StateAsleep:
		return not(v1alpha1.ReasonStarting, "The machine is about to be started")
	case server.State == backend.StatePaused:
		return requested(v1alpha1.ReasonPaused, "The machine is paused, as requested by spec.action")
	case server.State == backend.StateRunning && server.Message != "":
		return not(v1alpha1.ReasonGuestHalted, "The machine is on, but its guest is halted: %s", server.Message)
	case server.Agent == backend.AgentConnected:
		return newCondition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonGuestReady, "The guest agent has responded")
	case server.Agent == backend.AgentNone:
		return newCondition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonRunning,
			"The machine is running. It has no guest agent to report whether the guest has booted")
	case server.Agent == backend.AgentWaiting && server.Progress != "":
		return not(v1alpha1.ReasonStarting, "%s", progress("The machine is being started"))
	case server.Agent == backend.AgentLost:
		return not(v1alpha1.ReasonGuestSilent, "The machine is running, but its guest agent has stopped responding")
	}
	if silence := server.Silence; silence != nil && silence.GaveUp {
		return not(v1alpha1.ReasonGuestSilent, "The guest has said nothing since the machine was powered on, neither on its serial console nor through its agent, "+
			"and %d resets did not help. Look at its screen if it has one, check spec.image, and set spec.restartRequestedAt to start it again", silence.Resets)
	} else if silence != nil {
		return not(v1alpha1.ReasonGuestReset, "The guest said nothing for %s, neither on its serial console nor through its agent, and boots again after reset %d",
			silence.After, silence.Resets)
	}
	return not(v1alpha1.ReasonGuestBooting, "The machine is running, but its guest agent has not responded yet. "+
		"For an image without the QEMU guest agent, set spec.image.agent to false")
}

// summarizeServerConditions returns the conditions that describe the server.
func summarizeServerConditions(vm *v1alpha1.VirtualMachine, observed observation, p plan, ready metav1.Condition) []metav1.Condition {
	server := observed.server
	unknown := func(name string) metav1.Condition {
		return newCondition(name, metav1.ConditionUnknown, v1alpha1.ReasonUnknown, "There is no machine")
	}
	created := unknown(v1alpha1.ConditionCreated)
	agent := unknown(v1alpha1.ConditionAgentConnected)
	disks := unknown(v1alpha1.ConditionDisksReady)
	restart := unknown(v1alpha1.ConditionRestartRequired)
	emulated := unknown(v1alpha1.ConditionSoftwareEmulation)
	switch {
	case observed.err != nil:
		created.Reason, created.Message = ready.Reason, ready.Message
		if errors.Is(observed.err, backend.ErrMissing) && vm.Status.Server == nil {
			created.Status = metav1.ConditionFalse
		}
		return []metav1.Condition{created, agent, disks, restart, emulated}
	case server == nil || server.State == backend.StateAbsent:
		created.Status, created.Reason, created.Message = metav1.ConditionFalse, ready.Reason, ready.Message
		return []metav1.Condition{created, agent, disks, restart, emulated}
	}
	created = newCondition(v1alpha1.ConditionCreated, metav1.ConditionTrue, v1alpha1.ReasonServerCreated,
		"The driver %s runs the machine %s", observed.name, server.ID)
	agent, disks = summarizeAgent(server), summarizeDisks(server)
	restart = newCondition(v1alpha1.ConditionRestartRequired, metav1.ConditionFalse, v1alpha1.ReasonUpToDate, "No change requires a restart")
	if len(server.Pending) > 0 && server.IsOn() {
		restart = newCondition(v1alpha1.ConditionRestartRequired, metav1.ConditionTrue, v1alpha1.ReasonFieldsWait,
			"Changes of these fields require a restart: %s. Set spec.restartRequestedAt to the current time", strings.Join(server.Pending, ", "))
		if server.PendingReason != "" {
			restart.Message += ". Not all of them could be applied: " + server.PendingReason
		}
	}
	emulated = newCondition(v1alpha1.ConditionSoftwareEmulation, metav1.ConditionFalse, v1alpha1.ReasonHardwareVirtualization,
		"The machine uses hardware virtualization")
	if server.Emulated {
		emulated = newCondition(v1alpha1.ConditionSoftwareEmulation, metav1.ConditionTrue, v1alpha1.ReasonNoHardwareVirtualization,
			"The machine runs with software emulation, which is many times slower: the driver %s does not use hardware virtualization, see docs/drivers.md", observed.name)
	}
	return []metav1.Condition{created, agent, disks, restart, emulated}
}

func summarizeAgent(server *backend.Server) metav1.Condition {
	is := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return newCondition(v1alpha1.ConditionAgentConnected, status, reason, "%s", message)
	}
	switch {
	case server.State == backend.StateUnknown:
		return is(metav1.ConditionUnknown, v1alpha1.ReasonUnknown, "The monitor of the machine does not respond")
	case !server.IsOn():
		return is(metav1.ConditionFalse, v1alpha1.ReasonNotRunning, "The machine is not running")
	case server.Agent == backend.AgentConnected:
		return is(metav1.ConditionTrue, v1alpha1.ReasonConnected, "The guest agent responds")
	case server.Agent == backend.AgentNone:
		return is(metav1.ConditionFalse, v1alpha1.ReasonNoAgent, "The image or the driver has no guest agent")
	case server.Agent == backend.AgentLost:
		return is(metav1.ConditionFalse, v1alpha1.ReasonNotConnected, "The guest agent has stopped responding")
	}
	return is(metav1.ConditionFalse, v1alpha1.ReasonNotConnected, "The guest agent has not responded yet")
}
