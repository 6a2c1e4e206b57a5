package pod

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
)

// Start implements backend.Driver. The record names the run before its Pod exists, so that no run ends without notice.
func (d *Driver) Start(ctx context.Context, machine backend.Machine) error {
	if err := d.checkMachine(&machine); err != nil {
		return err
	}
	secret, rec, pod, err := d.beforeStart(ctx, machine.Identity)
	if err != nil {
		return err
	}
	if machine.KeepsSeed {
		machine.Seed = seedOf(secret)
	}
	if rec.Fill != nil {
		if err := d.awaitFill(ctx, rec); err != nil {
			return err
		}
		if rec.Fill.Token == "" {
			return backend.ErrInProgress
		}
		// The restore was withdrawn. If it is decided, the launcher finishes it.
	}
	isAsleep := rec.isAsleep(pod)
	if pod != nil {
		if over, err := d.clear(ctx, pod); !over || err != nil {
			return err
		}
		step("old Pod deleted")
	}
	if err := d.keepBudget(ctx, &machine, &rec.Machine); err != nil {
		return err
	}
	if isAsleep && rec.Started != nil {
		mustBe, before := pod != nil || rec.Asleep != nil, cmp.Or(rec.Asleep, &asleep{At: time.Now()})
		return d.begin(ctx, secret, rec.wake(machine), machine.Seed, before, mustBe)
	}
	applied := withImage(machine, rec)
	claims := map[string]*corev1.PersistentVolumeClaim{}
	if rec.Run != "" || len(claimedDisks(&applied))+len(claimedDisks(&rec.Machine)) > 0 { // otherwise it never had one
		if claims, err = d.claims(ctx, machine.Identity); err != nil {
			return err
		}
	}
	if err := d.makeClaims(ctx, &applied, &rec.Machine, claims); err != nil {
		return err
	}
	fitted := applied // the record keeps the wanted sizes, so that a difference is pending
	refused, err := d.growClaims(ctx, &fitted, claims)
	if err != nil {
		return err
	}
	next := &record{Machine: applied, Started: &fitted, SeedSum: sumOf(machine.Seed), Run: rand.String(10), DiskRefused: refused, Epoch: rec.Epoch,
		Restored: rec.Restored, FailedRestore: rec.FailedRestore}
	if rec.Stopped {
		next.Epoch = rec.Run
	}
	return d.begin(ctx, secret, next, machine.Seed, nil, false, func() error { return d.removeOthers(ctx, &applied, claims) })
}

// beforeStart returns the Secret of a machine, its record, and its Pod; nil if there is none. They are from the API server, but for the
// first run those of the watches are as good: the update of an older Secret is refused, and no Pod is created before its run is in the
// Secret. If the Secret was lost, there may be a Pod nevertheless, and a second one of its name is refused.
func (d *Driver) beforeStart(ctx context.Context, id backend.Identity) (*corev1.Secret, *record, *corev1.Pod, error) {
	if secret, pod, err := d.seen(ctx, id); err == nil && secret != nil && pod == nil {
		if rec, err := recordOf(secret); err == nil && rec.Run == "" {
			return secret, rec, nil, nil
		}
	}
	return d.current(ctx, id)
}

// begin begins a run: its record, what is to be done then, and its Pod. before is how the machine was asleep; nil if it was not. It
// certainly was if it must have been.
func (d *Driver) begin(
	ctx context.Context, secret *corev1.Secret, rec *record, seed *backend.Seed, before *asleep, mustBeAsleep bool, then ...func() error,
) error {
	rec.putInto(secret, seed)
	if err := d.writeSeed(ctx, newSeed(rec.Machine.Identity, secret)); err != nil {
		return err
	}
	if err := d.writeRecord(ctx, secret, rec, seed); err != nil {
		return err
	}
	step("run recorded")
	for _, do := range then {
		if err := do(); err != nil {
			return err
		}
	}
	next := newPod(rec, d.images, d.processors, mustBeAsleep)
	err := d.client.Create(ctx, next, client.FieldOwner(kube.FieldManager))
	switch {
	case apierrors.IsAlreadyExists(err):
		return backend.ErrInProgress // another manager was faster
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		// A quota or a policy, for example. The attempt is over.
		rec.Failure, rec.Asleep = &failure{Message: err.Error(), At: time.Now()}, before
		return d.writeRecord(ctx, secret, rec, seed)
	case err != nil:
		return typed("create the Pod "+next.Name, err)
	}
	step("Pod created")
	id := rec.Machine.Identity
	d.await(ctx, func() bool {
		seen, err := readPod(ctx, d.cache, id)
		return err == nil && seen != nil && seen.UID == next.UID
	})
	return backend.ErrInProgress
}

// writeSeed writes the Secret that the Pod of a machine mounts. Whatever a tenant has made of it is gone.
func (d *Driver) writeSeed(ctx context.Context, seed *corev1.Secret) error {
	err := d.client.Create(ctx, seed, client.FieldOwner(kube.FieldManager))
	if apierrors.IsAlreadyExists(err) {
		err = d.client.Update(ctx, seed, client.FieldOwner(kube.FieldManager))
	}
	if err != nil {
		return typed("write the Secret "+seed.Name, err)
	}
	step("seed written")
	return nil
}

// renewSeed writes the Secret that the Pod of a machine mounts as its record has it.
func (d *Driver) renewSeed(ctx context.Context, id backend.Identity) error {
	secret, err := d.readSecret(ctx, d.client, id)
	if err != nil || secret == nil {
		return err
	}
	return d.writeSeed(ctx, newSeed(id, secret))
}

// clear deletes a Pod that is over. It returns false if it is not: then there is nothing to start. The new Pod has the same name, so
// that the API server accepts it only when the old one is gone.
func (d *Driver) clear(ctx context.Context, pod *corev1.Pod) (over bool, err error) {
	if !isOver(pod) {
		if pod.DeletionTimestamp != nil {
			return false, backend.ErrInProgress
		}
		return false, nil
	}
	err = d.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, typed("delete the old Pod "+pod.Name, err)
	}
	gone := false
	d.await(ctx, func() bool {
		var seen corev1.Pod
		err := d.cache.Get(ctx, client.ObjectKeyFromObject(pod), &seen)
		gone = apierrors.IsNotFound(err) || err == nil && seen.UID != pod.UID
		return gone
	})
	if !gone {
		// Somebody else has a finalizer in it, or the watch is late. Its end is not that of the next run.
		return false, fmt.Errorf("the Pod %s is being deleted: %w", pod.Name, backend.ErrInProgress)
	}
	return true, nil
}
