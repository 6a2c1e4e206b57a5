package pod

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
)

// Create implements backend.Driver. The claims come first: with its Secret, a machine is complete.
func (d *Driver) Create(ctx context.Context, machine backend.Machine) error {
	if err := d.checkMachine(&machine); err != nil {
		return err
	}
	if machine.Snapshot != "" {
		return d.createFork(ctx, machine)
	}
	if disks := claimedDisks(&machine); len(disks) > 0 {
		// A machine that exists gets no new claim instead of a lost one.
		secret, err := d.readSecret(ctx, d.client, machine.Identity)
		if err != nil || secret != nil {
			return err
		}
		for _, disk := range disks {
			if _, err := d.makeClaim(ctx, &machine, disk); err != nil {
				return err
			}
		}
	}
	return d.createSecret(ctx, &record{Machine: machine}, machine.Seed)
}

func (d *Driver) createSecret(ctx context.Context, rec *record, seed *backend.Seed) error {
	secret := newSecret(d.records, rec, seed)
	if err := d.client.Create(ctx, secret, client.FieldOwner(kube.FieldManager)); err != nil && !apierrors.IsAlreadyExists(err) {
		return typed("create the Secret "+secret.Name, err)
	}
	step("secret created")
	d.await(ctx, func() bool {
		seen, err := d.readSecret(ctx, d.cache, rec.Machine.Identity)
		return err == nil && seen != nil
	})
	return nil
}

// checkMachine rejects what the driver cannot do.
func (d *Driver) checkMachine(machine *backend.Machine) error {
	if err := d.check(); err != nil {
		return err
	}
	return Validate(machine)
}

// withImage returns a machine with the image that it was created with: later ones may lack the source, or name a snapshot that is gone.
func withImage(machine backend.Machine, rec *record) backend.Machine {
	if rec.Machine.Hash != "" {
		if isOfSnapshot(&machine) && machine.DiskBytes == 0 {
			machine.DiskBytes = rec.Machine.DiskBytes
		}
		machine.Image = rec.Machine.Image
	}
	return machine
}

// find returns the Secret of a machine and its record. The error is an ErrNotFound if there is none.
func (d *Driver) find(ctx context.Context, id backend.Identity) (*corev1.Secret, *record, error) {
	secret, err := d.readSecret(ctx, d.client, id)
	if err != nil {
		return nil, nil, err
	}
	if secret == nil {
		return nil, nil, fmt.Errorf("%w: %s", backend.ErrNotFound, objectName(id.UID))
	}
	rec, err := recordOf(secret)
	return secret, rec, err
}

// current is find with the Pod of the machine; nil if there is none.
func (d *Driver) current(ctx context.Context, id backend.Identity) (*corev1.Secret, *record, *corev1.Pod, error) {
	secret, rec, err := d.find(ctx, id)
	if err != nil {
		return nil, nil, nil, err
	}
	pod, err := readPod(ctx, d.client, id)
	return secret, rec, pod, err
}

// writeRecord replaces the record and the seed in a Secret, unless it has changed in the meantime.
func (d *Driver) writeRecord(ctx context.Context, secret *corev1.Secret, rec *record, seed *backend.Seed) error {
	rec.putInto(secret, seed)
	if err := d.client.Update(ctx, secret, client.FieldOwner(kube.FieldManager)); err != nil {
		return typed("update the Secret "+secret.Name, err)
	}
	d.await(ctx, func() bool {
		seen, err := d.readSecret(ctx, d.cache, rec.Machine.Identity)
		if err != nil || seen == nil {
			return err == nil
		}
		order, err := resourceversion.CompareResourceVersion(seen.ResourceVersion, secret.ResourceVersion)
		return err != nil || order >= 0
	})
	return nil
}

// await waits until the watch has a change of this driver: the controller then never sees the state before it.
func (d *Driver) await(ctx context.Context, seen func() bool) { d.awaitFor(ctx, seenTimeout, seen) }

// awaitFor is await with another timeout. It reports whether the watch has the change.
func (d *Driver) awaitFor(ctx context.Context, timeout time.Duration, seen func() bool) bool {
	deadline := time.Now().Add(timeout)
	ticker := time.NewTicker(seenInterval)
	defer ticker.Stop()
	for !seen() {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
		}
		if !time.Now().Before(deadline) {
			return false
		}
	}
	return true
}

// repeat calls a function at once, and then periodically, until it returns false or the driver is closed.
func (d *Driver) repeat(interval time.Duration, do func() (again bool)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for do() {
		select {
		case <-d.running.Done():
			return
		case <-ticker.C:
		}
	}
}

// Stop implements backend.Driver. The record comes first, so that the end of the run counts as requested.
func (d *Driver) Stop(ctx context.Context, id backend.Identity, grace time.Duration) error {
	if err := d.check(); err != nil {
		return err
	}
	secret, rec, pod, err := d.current(ctx, id)
	if err != nil {
		return err
	}
	run := rec.Run
	if pod != nil {
		run = pod.Annotations[annotationRun]
	}
	isOff := pod == nil || isOver(pod)
	if !rec.Stopped || rec.Run != run || isOff && rec.Epoch != run || rec.MemoryLost != nil {
		rec.Stopped, rec.Run, rec.MemoryLost = true, run, nil
		if isOff { // a run that falls asleep now wakes to be powered off
			rec.Asleep, rec.Epoch = nil, run
		}
		if err := d.writeRecord(ctx, secret, rec, seedOf(secret)); err != nil {
			return err
		}
	}
	step("stop recorded")
	if isOff {
		return nil // a Pod that is over keeps the log
	}
	return d.deletePod(ctx, pod, grace)
}

// deletePod begins to delete a Pod that is not over: kubelet sends SIGTERM, and the launcher presses the power button. It never
// deletes one without the confirmation of kubelet, which is what a grace period of 0 would do.
func (d *Driver) deletePod(ctx context.Context, pod *corev1.Pod, grace time.Duration) error {
	seconds := max(1, int64(math.Ceil(grace.Seconds())))
	if pod.DeletionTimestamp != nil && ptr.Deref(pod.DeletionGracePeriodSeconds, 0) <= seconds {
		return backend.ErrInProgress
	}
	d.announceStop(ctx, pod)
	err := d.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}, client.GracePeriodSeconds(seconds))
	if err != nil && !apierrors.IsNotFound(err) {
		return typed("delete the Pod "+pod.Name, err)
	}
	step("Pod is being deleted")
	id := identityOf(pod)
	d.await(ctx, func() bool {
		seen, err := readPod(ctx, d.cache, id)
		return err == nil && (seen == nil || seen.UID != pod.UID || seen.DeletionTimestamp != nil)
	})
	return backend.ErrInProgress
}

// Reconfigure implements backend.Driver. What changes while the machine runs is applied in the background, as soon as it is recorded;
// the rest waits for the next start.
func (d *Driver) Reconfigure(ctx context.Context, machine backend.Machine) error {
	if err := d.checkMachine(&machine); err != nil {
		return err
	}
	secret, err := d.readSecret(ctx, d.client, machine.Identity)
	if err != nil {
		return err
	}
	if secret == nil {
		// Somebody has deleted it. Its Pod says what runs.
		pod, err := readPod(ctx, d.client, machine.Identity)
		if err != nil {
			return err
		}
		if pod == nil {
			return fmt.Errorf("%w: %s", backend.ErrNotFound, objectName(machine.UID))
		}
		if err := d.keepBudget(ctx, &machine, &backend.Machine{}); err != nil {
			return err
		}
		if isOfSnapshot(&machine) {
			machine = withImage(machine, &record{Machine: machineIn(pod)})
		}
		if err := d.createSecret(ctx, &record{Machine: machine, Run: pod.Annotations[annotationRun]}, machine.Seed); err != nil {
			return err
		}
		return d.renewSeed(ctx, machine.Identity) // it has another token
	}
	rec, err := recordOf(secret)
	if err != nil {
		return err
	}
	applied := withImage(machine, rec)
	if applied.MemoryBytes != rec.Machine.MemoryBytes {
		if err := d.checkMemory(ctx, &applied); err != nil {
			return err
		}
	}
	claims, err := d.claims(ctx, machine.Identity)
	if err != nil {
		return err
	}
	if err := d.makeClaims(ctx, &applied, &rec.Machine, claims); err != nil {
		return err
	}
	if err := d.keepBudget(ctx, &applied, &rec.Machine); err != nil {
		return err
	}
	if !hasSizesOf(&applied, &rec.Machine) {
		rec.DiskRefused = "" // they are tried again
	}
	rec.Machine = applied
	if err := d.writeRecord(ctx, secret, rec, machine.Seed); err != nil {
		return err
	}
	step("spec recorded")
	d.awaitLive(ctx, machine.Identity)
	return nil
}

// Delete implements backend.Driver. The record is the last thing that describes the machine, so that it is found until its data is gone.
func (d *Driver) Delete(ctx context.Context, id backend.Identity, options backend.DeleteOptions) error {
	if err := d.check(); err != nil {
		return err
	}
	if gone, err := d.removePods(ctx, id, options.Grace); err != nil || !gone {
		return err
	}
	if err := d.endTakes(ctx, id); err != nil {
		return err
	}
	claims, err := d.claims(ctx, id)
	if err != nil {
		return err
	}
	err = d.removeClaims(ctx, claims, func(disk string) bool {
		return options.KeepAll || disk == rootDisk && options.KeepDisk || slices.Contains(options.KeepDisks, disk)
	})
	if errors.Is(err, backend.ErrInProgress) {
		d.notifyWhenGone(id, claims)
	}
	if err != nil {
		return err
	}
	if err := d.removeBudget(ctx, id); err != nil {
		return err
	}
	secret, err := d.readSecret(ctx, d.client, id)
	if err != nil {
		return err
	}
	if secret != nil {
		if err := d.client.Delete(ctx, secret, client.Preconditions{UID: &secret.UID}); err != nil && !apierrors.IsNotFound(err) {
			return typed("delete the Secret "+secret.Name, err)
		}
		step("secret deleted")
	}
	// After the record, which is written between the seed and the Pod: so a Pod that another manager creates from now on has no seed.
	seed := newSeed(id, &corev1.Secret{})
	if err := d.client.Delete(ctx, seed); err != nil && !apierrors.IsNotFound(err) {
		return typed("delete the Secret "+seed.Name, err)
	}
	if gone, err := d.removePods(ctx, id, options.Grace); err != nil || !gone {
		return err
	}
	d.mu.Lock()
	delete(d.sleeps, keyOf(id))
	delete(d.live, keyOf(id))
	d.mu.Unlock()
	d.await(ctx, func() bool {
		secret, err := d.readSecret(ctx, d.cache, id)
		pod, podErr := readPod(ctx, d.cache, id)
		return err == nil && podErr == nil && secret == nil && pod == nil
	})
	return nil
}

// removePods reports whether there is no Pod of a machine, and begins to delete those that there are.
func (d *Driver) removePods(ctx context.Context, id backend.Identity, grace time.Duration) (gone bool, err error) {
	if err := d.removeFill(ctx, id); err != nil {
		return false, err
	}
	pod, err := readPod(ctx, d.client, id)
	if err != nil || pod == nil {
		return err == nil, err
	}
	if isOver(pod) {
		return d.clear(ctx, pod)
	}
	return false, d.deletePod(ctx, pod, grace)
}
