package pod

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/operation"
	"github.com/keelson-dev/keelson/internal/launcher"
)

const (
	// sleepTimeout is how long a launcher may take to save the memory of a machine.
	sleepTimeout = 10 * time.Minute
	// asleepTimeout is how long its Pod may take to end afterwards.
	asleepTimeout = time.Minute
	// sleepRetryInterval is the interval between attempts to put a machine to sleep: each halts it for a moment.
	sleepRetryInterval = 30 * time.Second
)

// asleep is how the last run was put to sleep, from when that begins: if its Pod ends as asleep, or is gone, the machine is asleep.
type asleep struct {
	backend.SleepOptions

	At time.Time `json:"at"`
	// SavedBytes is the size of the saved memory; 0 if it is not known.
	SavedBytes int64 `json:"savedBytes,omitempty"`
}

// sleepTask is the last attempt to put the run in a Pod to sleep.
type sleepTask struct {
	pod  types.UID
	work operation.Slot
}

// isAsleep reports whether a machine is asleep, given its Pod, which may be nil.
func (r *record) isAsleep(pod *corev1.Pod) bool {
	switch {
	case pod == nil:
		return !r.Stopped && (r.Asleep != nil || r.mayBeAsleep())
	case !isOver(pod), r.Stopped && r.Epoch == pod.Annotations[annotationRun]:
		return false // or its memory is void
	}
	report, ok := reportOf(machineStatus(pod))
	return ok && report.Cause == launcher.CauseAsleep
}

// mayBeAsleep reports whether a machine whose Pod is gone has fallen asleep if it could: then that was recorded nowhere but on its volume.
func (r *record) mayBeAsleep() bool {
	return r.Run != "" && r.Failure == nil && r.Started != nil && r.Started.Pod.EvictionPolicy == v1alpha1.EvictionSleep
}

// describeAsleep describes a machine that is asleep.
func describeAsleep(s *backend.Server, rec *record, pod *corev1.Pod) {
	s.State, s.Ended, s.Asleep = backend.StateAsleep, nil, &backend.Asleep{}
	if rec.Asleep != nil {
		s.Asleep.SleepOptions, s.Asleep.Since, s.SavedBytes = rec.Asleep.SleepOptions, rec.Asleep.At, rec.Asleep.SavedBytes
	}
	if pod != nil {
		status := machineStatus(pod)
		report, _ := reportOf(status) // it is readable
		s.SavedBytes, s.Asleep.Since = report.SavedBytes, status.State.Terminated.FinishedAt.Time
	} else if rec.Failure != nil {
		s.Ended = &backend.Ended{Run: rec.Run, Cause: backend.CauseStartFailed, Message: rec.Failure.Message, At: rec.Failure.At}
	}
}

// Sleep implements backend.Driver. The record comes first, so that a Pod that is gone afterwards was one that is asleep; the launcher
// does the rest, whatever becomes of this manager.
func (d *Driver) Sleep(ctx context.Context, id backend.Identity, options backend.SleepOptions) error {
	if err := d.check(); err != nil {
		return err
	}
	secret, rec, pod, err := d.current(ctx, id)
	if err != nil {
		return err
	}
	isOff := pod == nil || isOver(pod)
	switch {
	case isOff && !rec.isAsleep(pod):
		return nil
	case !isOff && (pod.DeletionTimestamp != nil || !isOn(pod)):
		return backend.ErrInProgress
	case !isOff:
		if definition, readable := definitionOf(pod); readable && !definition.CanSleep() {
			return fmt.Errorf("%w: the memory of a machine of the driver pod that sleeps is in the PersistentVolumeClaim of its root disk, and this machine has none; "+
				"set spec.action to active or stopped", backend.ErrInvalid)
		}
		if failed := d.lastSleep(id, pod.UID); failed != nil {
			return failed
		}
	}
	if rec.Asleep == nil || rec.Asleep.SleepOptions != options {
		rec.Asleep = &asleep{SleepOptions: options, At: time.Now()}
		if err := d.writeRecord(ctx, secret, rec, seedOf(secret)); err != nil {
			return err
		}
		step("sleep requested")
	}
	if isOff {
		return nil
	}
	d.beginSleep(id, pod.UID)
	return backend.ErrInProgress
}

// lastSleep returns why the last attempt to put the run in a Pod to sleep has failed; an ErrInProgress while there is one, and nil if the
// next one is due.
func (d *Driver) lastSleep(id backend.Identity, pod types.UID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	task := d.sleeps[keyOf(id)]
	switch {
	case task == nil || task.pod != pod:
		return nil
	case task.work.Busy():
		return backend.ErrInProgress
	}
	if at, err := task.work.Failure(backend.TaskSleep); time.Since(at) < sleepRetryInterval {
		return err
	}
	return nil
}

// beginSleep makes the launcher put its machine to sleep, in the background.
func (d *Driver) beginSleep(id backend.Identity, pod types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	task := &sleepTask{pod: pod}
	d.sleeps[keyOf(id)] = task
	_ = task.work.Begin(d.running, &d.watches, operation.Work{
		Kind: backend.TaskSleep, Progress: "its memory is being saved", Changed: func() { d.notifyChange(id) },
		Do: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, sleepTimeout)
			defer cancel()
			return d.askSleep(ctx, id, pod)
		},
	})
}

// askSleep asks the launcher to put its machine to sleep, and waits until its Pod is over.
func (d *Driver) askSleep(ctx context.Context, id backend.Identity, uid types.UID) error {
	conn, err := d.connect(ctx, id, "the launcher", launcher.SleepPath)
	if err == nil {
		_ = conn.Close() // there is nothing to read
	}
	if errors.As(err, new(refusal)) || errors.As(err, new(oldLauncher)) {
		return errors.Join(err, d.recordSleep(ctx, id, nil))
	}
	step("sleep answered")
	// Otherwise it may have ended before it could answer.
	var pod *corev1.Pod
	isGone := func() bool {
		var seenErr error
		_, pod, seenErr = d.seen(ctx, id)
		return errors.Is(seenErr, backend.ErrNotFound) || seenErr == nil && (pod == nil || pod.UID != uid || isOver(pod))
	}
	if !d.awaitFor(ctx, asleepTimeout, isGone) {
		if err == nil {
			err = fmt.Errorf("the Pod of machine %s does not end, although its memory is saved", id.UID)
		}
		return err
	}
	if pod == nil || pod.UID != uid {
		return nil
	}
	report, _ := reportOf(machineStatus(pod)) // or another end
	return d.recordSleep(ctx, id, &report)
}

// recordSleep records the size of the saved memory of a machine that is asleep, or that it is not: then report is nil, or has another
// cause. Nobody else would do so after a conflict.
func (d *Driver) recordSleep(ctx context.Context, id backend.Identity, report *launcher.Ended) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error { return d.tryRecordSleep(ctx, id, report) })
}

func (d *Driver) tryRecordSleep(ctx context.Context, id backend.Identity, report *launcher.Ended) error {
	secret, rec, err := d.find(ctx, id)
	if errors.Is(err, backend.ErrNotFound) {
		return nil // it was deleted meanwhile
	}
	if err != nil || rec.Asleep == nil {
		return err
	}
	if report == nil || report.Cause != launcher.CauseAsleep {
		rec.Asleep = nil
	} else {
		rec.Asleep.SavedBytes, rec.Asleep.At = report.SavedBytes, time.Now()
	}
	if err := d.writeRecord(ctx, secret, rec, seedOf(secret)); err != nil {
		return err
	}
	step("sleep recorded")
	return nil
}

// addSleep adds an attempt that is in progress to a server, which is asleep when that is recorded.
func (d *Driver) addSleep(server *backend.Server) {
	if !server.IsOn() && server.State != backend.StateAsleep || server.Task != backend.TaskNone {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if task := d.sleeps[keyOf(server.Identity)]; task != nil && task.work.Busy() {
		server.Task, server.Progress = task.work.State()
	}
}
