package pod

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
)

// readFill reads the Pod that copies the disks of a machine; nil if there is none.
func (d *Driver) readFill(ctx context.Context, from client.Reader, id backend.Identity) (*corev1.Pod, error) {
	return readNamed[corev1.Pod](ctx, from, id.Namespace, fillName(id.UID))
}

// beginFill creates the Pod that does the fill of a record, unless there is one. It deletes that of an attempt that has failed.
func (d *Driver) beginFill(ctx context.Context, secret *corev1.Secret, rec *record) error {
	id := rec.Machine.Identity
	pod, err := d.readFill(ctx, d.client, id)
	if err != nil {
		return err
	}
	if pod != nil {
		if err := d.endAttempt(ctx, rec, pod); err != nil {
			return err
		}
	}
	if rec.Fill.Token != "" { // a new machine gets its claims again
		lost, err := d.lostClaim(ctx, rec)
		if err != nil {
			return err
		}
		if lost != "" {
			rec.endFill(lost, nil, time.Now())
			return d.writeRecord(ctx, secret, rec, seedOf(secret))
		}
	}
	next := newFillPod(rec, d.images, d.processors)
	if err := d.client.Create(ctx, next, client.FieldOwner(kube.FieldManager)); err != nil && !apierrors.IsAlreadyExists(err) {
		return typed("create the Pod "+next.Name, err)
	}
	step("fill Pod created")
	d.await(ctx, func() bool {
		seen, err := d.readFill(ctx, d.cache, id)
		return err == nil && seen != nil
	})
	return backend.ErrInProgress
}

// endAttempt ends the attempt of a Pod to do the fill of a record, if it has failed. The error is an ErrInProgress while it does the fill.
func (d *Driver) endAttempt(ctx context.Context, rec *record, pod *corev1.Pod) error {
	id, now := rec.Machine.Identity, time.Now()
	isIts := rec.Fill.isFor(pod)
	switch why := whyFillWaits(pod, now); {
	case rec.Fill.Token != "" && isIts && why != "":
		lost, err := d.lostClaim(ctx, rec)
		if err == nil && lost == "" {
			err = errors.New(why)
		}
		if err != nil {
			return err
		}
		return d.endFillPod(ctx, pod) // only then can the failure be recorded: it would begin if the claim were restored
	case !isOver(pod):
		return backend.ErrInProgress
	case isIts && rec.settles(pod):
		return orInProgress(d.settleFill(ctx, id))
	}
	if failure, _ := endOfFill(pod); rec.Fill.Token != "" && isIts && now.Sub(endedAt(pod, now)) < fillRetryInterval {
		return fmt.Errorf("restore the machine: %s", failure)
	}
	if _, err := d.clear(ctx, pod); err != nil {
		return err
	}
	step("old fill Pod deleted")
	return nil
}

// lostClaim returns which claim of the fill of a record is gone, and what to do; empty if none is.
func (d *Driver) lostClaim(ctx context.Context, rec *record) (string, error) {
	machine, of := &rec.Machine, rec.Fill.Snapshot
	claims, err := d.claims(ctx, machine.Identity)
	if err != nil {
		return "", err
	}
	for _, disk := range claimedDisks(machine) {
		if isGone(claims[disk.Name]) {
			return errLostClaim(machine, disk.Name).Error(), nil
		}
	}
	claim, err := d.snapshotClaim(ctx, of)
	if err == nil && isGone(claim) {
		return fmt.Sprintf("the PersistentVolumeClaim %s/%s with the snapshot %s is gone; restore it, or restore the machine from another snapshot",
			of.Namespace, snapshotName(of.UID), of.Name), nil
	}
	return "", err
}

// isGone reports whether no Pod can use a claim, which may be nil, any more.
func isGone(claim *corev1.PersistentVolumeClaim) bool {
	return claim == nil || claim.DeletionTimestamp != nil || claim.Status.Phase == corev1.ClaimLost
}

// awaitFill returns an ErrInProgress if the fill of a machine is not over, or its end was not recorded, which this does. A restore, which
// is not wanted any more, ends if it has not begun.
func (d *Driver) awaitFill(ctx context.Context, rec *record) error {
	pod, err := d.readFill(ctx, d.client, rec.Machine.Identity)
	if err != nil || pod == nil {
		return err
	}
	hasFailed := isOver(pod) && !rec.settles(pod)
	switch {
	case rec.Fill.Token != "" && (hasFailed || whyFillWaits(pod, time.Now()) != ""):
		return d.endFillPod(ctx, pod)
	case hasFailed:
		return nil // the Pod says why
	}
	return orInProgress(d.settleFill(ctx, rec.Machine.Identity))
}

// orInProgress returns an error, or an ErrInProgress without one. Both in one would hide the error: nobody would retry.
func orInProgress(err error) error {
	if err == nil {
		return backend.ErrInProgress
	}
	return err
}

// followFill begins to record the end of the fill of a machine, in the background.
func (d *Driver) followFill(id backend.Identity) {
	pod, err := d.readFill(d.running, d.cache, id)
	if err != nil || pod == nil || !isOver(pod) {
		return
	}
	secret, err := d.readSecret(d.running, d.cache, id)
	if err != nil || secret == nil {
		return // whoever deletes a machine deletes the Pod
	}
	if rec, err := recordOf(secret); err != nil || !rec.settles(pod) {
		return // Observe reports it
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.fills[keyOf(id)] {
		return
	}
	d.fills[keyOf(id)] = true
	d.watches.Go(func() { d.keepSettling(id) })
}

// keepSettling records the end of a fill until that succeeds.
func (d *Driver) keepSettling(id backend.Identity) {
	d.repeat(fillRetryInterval, func() bool { return d.settleFill(d.running, id) != nil })
	d.mu.Lock()
	delete(d.fills, keyOf(id))
	d.mu.Unlock()
	d.notifyChange(id)
}

// settleFill records the end of the fill of a machine, and deletes its Pod.
func (d *Driver) settleFill(ctx context.Context, id backend.Identity) error {
	secret, rec, err := d.find(ctx, id)
	if errors.Is(err, backend.ErrNotFound) {
		return nil // it was deleted meanwhile
	}
	if err != nil {
		return err
	}
	pod, err := d.readFill(ctx, d.client, id)
	if err != nil || pod == nil || !rec.settles(pod) {
		return err
	}
	if rec.Fill != nil && rec.Fill.isFor(pod) {
		machine, err := readPod(ctx, d.client, id)
		if err != nil {
			return err
		}
		failure, _ := endOfFill(pod)
		if machine != nil && failure == "" && (rec.Fill.Memory != nil || rec.Fill.NoMemory != "") {
			// It would say that the machine is off.
			if gone, err := d.clear(ctx, machine); err != nil || !gone {
				return orInProgress(err)
			}
			machine = nil
		}
		rec.endFill(failure, machine, time.Now())
		if err := d.writeRecord(ctx, secret, rec, seedOf(secret)); err != nil {
			return err
		}
		step("fill recorded")
	}
	if err := d.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}); err != nil && !apierrors.IsNotFound(err) {
		return typed("delete the Pod "+pod.Name, err)
	}
	step("fill Pod deleted")
	return nil
}

// removeFill ends the fill of a machine that is deleted. The error is an ErrInProgress until its Pod is gone.
func (d *Driver) removeFill(ctx context.Context, id backend.Identity) error {
	pod, err := d.readFill(ctx, d.cache, id)
	if err != nil || pod == nil {
		return err
	}
	return d.endFillPod(ctx, pod)
}

// endFillPod ends a fill. The error is an ErrInProgress until its Pod is gone.
func (d *Driver) endFillPod(ctx context.Context, pod *corev1.Pod) error {
	if isOver(pod) {
		_, err := d.clear(ctx, pod)
		return err
	}
	if pod.DeletionTimestamp == nil {
		if err := d.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}); err != nil && !apierrors.IsNotFound(err) {
			return typed("delete the Pod "+pod.Name, err)
		}
		step("fill Pod is being deleted")
	}
	return fmt.Errorf("the Pod %s, which copies the disks of a snapshot, is being ended: %w", pod.Name, backend.ErrInProgress)
}
