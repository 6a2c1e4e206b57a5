package virtualmachine

import (
	"errors"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/image"
	"github.com/keelson-dev/keelson/internal/kube"
)

// usageStep is the change of a usage, in percentage points, that is written to the status.
const usageStep = 5

// summarize returns the status of vm, given the observation, the plan, and the errors of
// carrying it out.
func summarize(vm *v1alpha1.VirtualMachine, observed observation, p plan, done acted) v1alpha1.VirtualMachineStatus {
	actErr := done.server
	status := *vm.Status.DeepCopy()
	status.ObservedGeneration = vm.Generation
	failure := failureOf(observed, actErr)
	summarizeFailures(vm, observed, p, failure, &status)
	summarizeRestart(vm, observed, p, &status)
	summarizeServer(observed, p, &status)
	summarizeSchedule(p.power, &status)
	if p.action == claim && actErr == nil || isClaimed(vm, observed) {
		status.Host = &v1alpha1.Host{Driver: observed.name, ID: observed.host.ID, Name: observed.host.Name}
	}

	ready := summarizeReady(vm, observed, p, &status, failure, actErr)
	status.Phase = phaseOf(vm, observed, p, &status, ready.Reason)
	status.PrintableStatus = printableStatus(status.Phase, ready.Reason)
	guest := summarizeGuest(ready)
	status.Reason = ready.Message
	if guest.Status == metav1.ConditionTrue {
		status.Reason = ""
	}
	all := append(summarizeServerConditions(vm, observed, p, ready), ready, guest, summarizeSynchronized(vm, observed, p, failure, actErr))
	kube.SetConditions(vm, &status.Conditions, p.now, all...)
	summarizeService(vm, observed, p, guest, done.service, &status)
	summarizeRestore(vm, &observed, p, done.previous, &status)
	summarizeSnapshots(vm, observed, p, done.schedule, &status)
	return status
}

// failure classifies why the plan could not be carried out.
type failure string

const (
	noFailure failure = ""
	// invalidSpec: the user has to change the spec.
	invalidSpec failure = v1alpha1.ReasonInvalidSpec
	// secretMissing: the user has to create a Secret.
	secretMissing failure = v1alpha1.ReasonSecretMissing
	// imageMissing: the user has to create a VirtualMachineImage.
	imageMissing failure = v1alpha1.ReasonImageMissing
	// imageNotReady: the VirtualMachineImage cannot be used yet.
	imageNotReady failure = v1alpha1.ReasonImageNotReady
	// backendUnavailable: the backend does not respond.
	backendUnavailable failure = v1alpha1.ReasonBackendUnavailable
	// driverMissing: the manager does not have the driver.
	driverMissing failure = v1alpha1.ReasonDriverMissing
	// driverConflict: the user has to resolve which driver has the server.
	driverConflict failure = v1alpha1.ReasonDriverConflict
	// onAnotherHost: the user has to run the manager on another host.
	onAnotherHost failure = v1alpha1.ReasonOnAnotherHost
	// otherFailure: anything else; it is retried.
	otherFailure failure = v1alpha1.ReasonPowerFailed
)

func failureOf(observed observation, actErr error) failure {
	err := actErr
	if err == nil {
		err = observed.err
	}
	switch {
	case err == nil, errors.Is(err, backend.ErrInProgress):
		return noFailure
	case errors.Is(err, backend.ErrInvalid):
		return invalidSpec
	case errors.Is(err, errConflict):
		return driverConflict
	case errors.Is(err, errOnAnotherHost):
		return onAnotherHost
	case errors.Is(err, errSecretMissing):
		return secretMissing
	case errors.Is(err, image.ErrMissing):
		return imageMissing
	case errors.Is(err, image.ErrNotReady):
		return imageNotReady
	case errors.Is(err, backend.ErrMissing):
		return driverMissing
	case errors.Is(err, backend.ErrUnavailable):
		return backendUnavailable
	}
	return otherFailure
}

// isRefused reports whether the spec cannot be applied until something else is corrected: the spec itself, an object that it names, or a
// policy. Since not all of these are watched, it is tried again.
func isRefused(f failure) bool {
	return f == invalidSpec || f == secretMissing || f == imageMissing || f == imageNotReady
}

// isFailedAttempt reports whether a call to create or start the server has failed with an
// error that a retry may fix.
func isFailedAttempt(p plan, f failure) bool {
	return f == otherFailure && actions[p.action].failed != ""
}

// summarizeFailures counts failures, and resets the count.
func summarizeFailures(vm *v1alpha1.VirtualMachine, observed observation, p plan, f failure, status *v1alpha1.VirtualMachineStatus) {
	failures := consecutiveFailures(vm)
	switch {
	case p.action == recordEnd:
		ended := observed.server.Ended
		status.StartFailure = &v1alpha1.StartFailure{Count: failuresAfter(vm, ended), RetryAfter: ptr.To(metav1.NewTime(p.nextAttempt).Rfc3339Copy())}
		status.LastEndedRun = ended.Run
		if endedRun(ended) {
			status.Restarts++
		}
	case isFailedAttempt(p, f):
		failures++
		due := metav1.NewTime(p.now.Add(backoff(string(vm.UID), failures))).Rfc3339Copy()
		status.StartFailure = &v1alpha1.StartFailure{Count: failures, RetryAfter: &due}
	case failures == 0, p.action == recordRestart:
		// A restart resets the backoff, as a change of the spec does, whether it is due now or was requested earlier.
		status.StartFailure = nil
	case observed.server != nil && observed.server.IsOn() && p.now.Sub(observed.server.StartedAt) >= stableRun:
		status.StartFailure = nil
	}
}

// summarizeRestart records the progress of a requested restart.
func summarizeRestart(vm *v1alpha1.VirtualMachine, observed observation, p plan, status *v1alpha1.VirtualMachineStatus) {
	switch {
	case p.action == recordRestart:
		status.PendingRestart = &v1alpha1.PendingRestart{RequestedAt: *vm.Spec.RestartRequestedAt, Run: observed.server.Run}
	case p.action == completeRestart:
		status.LastRestartRequestedAt = &vm.Status.PendingRestart.RequestedAt
		status.PendingRestart = nil
	case vm.Status.Server == nil && vm.Spec.RestartRequestedAt != nil && !vm.Spec.RestartRequestedAt.After(p.now):
		// The first start of the server fulfills a restart requested before.
		status.LastRestartRequestedAt = vm.Spec.RestartRequestedAt
	}
}

// summarizeServer records the state of the server.
func summarizeServer(observed observation, p plan, status *v1alpha1.VirtualMachineStatus) {
	server := observed.server
	switch {
	case observed.err != nil:
		if status.Server != nil {
			status.Server.State = v1alpha1.ServerUnknown
		}
		return
	case server == nil || server.State == backend.StateAbsent:
		status.Server = nil
		return
	}
	before := status.Server
	status.Server = &v1alpha1.Server{
		ID: server.ID, State: stateOf(server, p), Run: server.Run,
		Addresses: server.Addresses, Endpoints: server.Endpoints,
	}
	if !server.IsOn() && server.State != backend.StateUnknown {
		return
	}
	if !server.StartedAt.IsZero() {
		status.Server.StartedAt = ptr.To(metav1.NewTime(server.StartedAt).Rfc3339Copy())
	}
	sameRun := before != nil && before.Run == server.Run
	switch {
	case server.Usage == nil || server.Usage.CPU < 0:
		if sameRun {
			status.Server.Usage = before.Usage
		}
	default:
		status.Server.Usage = &v1alpha1.Usage{CPU: percent(server.Usage.CPU), Memory: percent(server.Usage.Memory)}
		if sameRun && !changedEnough(before.Usage, status.Server.Usage) {
			status.Server.Usage = before.Usage
		}
	}
}

func stateOf(server *backend.Server, p plan) v1alpha1.ServerState {
	switch {
	case server.Task == backend.TaskStart, p.action == start:
		// Even if its monitor has not responded for the first time yet.
		return v1alpha1.ServerStarting
	case server.State == backend.StateUnknown:
		return v1alpha1.ServerUnknown
	case server.Task == backend.TaskSleep:
		return v1alpha1.ServerStopping
	case server.Task == backend.TaskStop, server.Task == backend.TaskDelete, p.action == remove && server.IsOn():
		return v1alpha1.ServerStopping
	}
	return v1alpha1.ServerState(server.State)
}

func percent(value float64) int32 { return int32(math.Round(min(max(value, 0), 100))) }

// changedEnough reports whether a usage differs enough from the written one.
func changedEnough(before, now *v1alpha1.Usage) bool {
	far := func(a, b int32) bool { return max(a-b, b-a) >= usageStep }
	return before == nil || far(before.CPU, now.CPU) || far(before.Memory, now.Memory)
}

// phaseOf returns the phase for a reason of Ready.
func phaseOf(vm *v1alpha1.VirtualMachine, observed observation, p plan, status *v1alpha1.VirtualMachineStatus, reason string) v1alpha1.Phase {
	server := observed.server
	switch {
	case !vm.DeletionTimestamp.IsZero():
		return v1alpha1.PhaseTerminating
	case reason == v1alpha1.ReasonBackendUnavailable, reason == v1alpha1.ReasonDriverConflict,
		reason == v1alpha1.ReasonOnAnotherHost:
		return v1alpha1.PhaseUnknown
	case reason == v1alpha1.ReasonDriverMissing:
		if status.Server != nil {
			return v1alpha1.PhaseUnknown
		}
		return v1alpha1.PhaseFailed
	}
	switch reason {
	case v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonSecretMissing, v1alpha1.ReasonImageMissing, v1alpha1.ReasonCreateFailed, v1alpha1.ReasonPowerFailed, v1alpha1.ReasonBackOff:
		return v1alpha1.PhaseFailed
	}
	before := vm.Status.Phase
	notYet := server == nil || server.State == backend.StateAbsent ||
		server.Run == "" && !server.IsOn() && p.power.wanted != v1alpha1.ActionStopped && p.power.wanted != v1alpha1.ActionAsleep
	firstStart := server != nil && server.Task == backend.TaskStart && (before == "" || before == v1alpha1.PhaseCreating)
	if notYet || firstStart {
		return v1alpha1.PhaseCreating
	}
	return v1alpha1.PhaseActive
}

// printableStatus returns the word for kubectl of a phase and a reason of Ready.
func printableStatus(phase v1alpha1.Phase, reason string) v1alpha1.PrintableStatus {
	if reason == v1alpha1.ReasonUnschedulable {
		return v1alpha1.StatusUnschedulable
	}
	if phase != v1alpha1.PhaseActive && reason != v1alpha1.ReasonStarting {
		return v1alpha1.PrintableStatus(phase)
	}
	switch reason {
	case v1alpha1.ReasonStarting, v1alpha1.ReasonGuestBooting, v1alpha1.ReasonGuestReset, v1alpha1.ReasonProbing:
		return v1alpha1.StatusBooting
	case v1alpha1.ReasonStopping, v1alpha1.ReasonFallingAsleep, v1alpha1.ReasonRestoring:
		return v1alpha1.StatusStopping
	case v1alpha1.ReasonStopped, v1alpha1.ReasonGuestStopped:
		return v1alpha1.StatusStopped
	case v1alpha1.ReasonPaused:
		return v1alpha1.StatusPaused
	case v1alpha1.ReasonAsleep:
		return v1alpha1.StatusAsleep
	}
	return v1alpha1.StatusRunning
}

// timestamp formats a time for messages.
func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
