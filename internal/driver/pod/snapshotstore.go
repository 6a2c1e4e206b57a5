package pod

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
)

// WatchSnapshots implements backend.SnapshotStore.
func (d *Driver) WatchSnapshots(notify func(backend.SnapshotIdentity)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notifySnapshot = notify
}

// notifySnapshotsOf notifies the controller of the snapshots of a machine whose Pod has changed, unless they are taken: an attempt to take one
// may have to end, or can begin.
func (d *Driver) notifySnapshotsOf(machine backend.Identity) {
	var claims corev1.PersistentVolumeClaimList
	if d.cache.List(d.running, &claims, client.InNamespace(machine.Namespace), client.UnsafeDisableDeepCopy) != nil {
		return // it ends
	}
	d.mu.Lock()
	notify := d.notifySnapshot
	d.mu.Unlock()
	for i := range claims.Items {
		claim := &claims.Items[i]
		if claim.Annotations[annotationSnapshotOf] != string(machine.UID) {
			continue
		}
		if rec, err := d.snapshotRecord(d.running, d.cache, claim); err != nil || rec == nil {
			notify(snapshotOf(claim))
		}
	}
}

// ObserveSnapshot implements backend.SnapshotStore. It makes no request.
func (d *Driver) ObserveSnapshot(ctx context.Context, id backend.SnapshotIdentity) (backend.SnapshotState, error) {
	if err := d.check(); err != nil {
		return backend.SnapshotState{}, err
	}
	claim, pod, err := d.seenSnapshot(ctx, id)
	if err != nil {
		return backend.SnapshotState{}, err
	}
	if claim == nil && pod == nil {
		return backend.SnapshotState{}, fmt.Errorf("snapshot %s: %w", id.Name, backend.ErrNotFound)
	}
	rec, err := d.snapshotRecord(ctx, d.cache, claim)
	if err != nil {
		return backend.SnapshotState{}, err
	}
	var machine *corev1.Pod
	if pod != nil {
		if machine, err = readPod(ctx, d.cache, ofSnapshot(pod)); err != nil {
			return backend.SnapshotState{}, err
		}
	}
	return describeSnapshot(claim, rec, pod, machine, time.Now()), nil
}

// seenSnapshot returns what the watches have of a snapshot: its claim and the Pod that takes it, which may be nil.
func (d *Driver) seenSnapshot(ctx context.Context, id backend.SnapshotIdentity) (*corev1.PersistentVolumeClaim, *corev1.Pod, error) {
	claim, err := readNamed[corev1.PersistentVolumeClaim](ctx, d.cache, id.Namespace, snapshotName(id.UID))
	if err != nil {
		return nil, nil, err
	}
	pod, err := readNamed[corev1.Pod](ctx, d.cache, id.Namespace, snapshotName(id.UID))
	return claim, pod, err
}

// TakeSnapshot implements backend.SnapshotStore. Each call takes the steps that are possible now; the watches say when the next one is.
func (d *Driver) TakeSnapshot(ctx context.Context, id backend.SnapshotIdentity, of backend.Source) error {
	if err := d.check(); err != nil {
		return err
	}
	claim, err := d.snapshotClaim(ctx, id)
	if err != nil {
		return err
	}
	pod, err := readNamed[corev1.Pod](ctx, d.client, id.Namespace, snapshotName(id.UID))
	if err != nil {
		return err
	}
	switch rec, err := d.snapshotRecord(ctx, d.client, claim); {
	case err != nil:
		return err
	case rec != nil:
		return d.endTake(ctx, pod)
	}
	source, err := d.snapshotSource(ctx, of)
	if err != nil {
		return err
	}
	if pod != nil {
		result, _ := jobResult(pod)
		switch {
		case result.Taken != nil && claim != nil:
			return d.recordSnapshot(ctx, claim, pod, newSnapshotRecord(claim, source, result.Taken))
		case isOver(pod) || pod.Annotations[annotationSnapshotRun] != runOf(source.pod):
			return d.endTake(ctx, pod) // the next call begins anew
		}
		return nil
	}
	wanted := newSnapshotClaim(id, source.machine, source.memory)
	switch {
	case claim != nil && claim.DeletionTimestamp != nil:
		return nil
	case claim != nil && claim.Spec.Resources.Requests.Storage().Cmp(*wanted.Spec.Resources.Requests.Storage()) < 0: // the machine has grown
		return unlessInProgress(d.deleteSnapshotClaim(ctx, claim))
	case claim == nil:
		if err := d.client.Create(ctx, wanted, client.FieldOwner(kube.FieldManager)); err != nil && !apierrors.IsAlreadyExists(err) {
			return typed("create the PersistentVolumeClaim "+wanted.Name, err)
		}
		step("snapshot claim created")
	}
	if source.pod != nil && source.pod.Spec.NodeName == "" {
		return nil // its disks are not at a node yet
	}
	return d.createTake(ctx, id, source)
}

// createTake creates the Pod that takes a snapshot.
func (d *Driver) createTake(ctx context.Context, id backend.SnapshotIdentity, source *snapshotSource) error {
	pod := newTakePod(id, source, d.images.launcher)
	if err := d.client.Create(ctx, pod, client.FieldOwner(kube.FieldManager)); err != nil && !apierrors.IsAlreadyExists(err) {
		return typed("create the Pod "+pod.Name, err)
	}
	step("take Pod created")
	d.await(ctx, func() bool {
		_, seen, err := d.seenSnapshot(ctx, id)
		return err == nil && seen != nil
	})
	return nil
}

// snapshotRecord returns the record of the snapshot in a claim, which may be nil; nil if it is not taken.
func (d *Driver) snapshotRecord(ctx context.Context, from client.Reader, claim *corev1.PersistentVolumeClaim) (*snapshotRecord, error) {
	if claim == nil {
		return nil, nil
	}
	secret, err := readNamed[corev1.Secret](ctx, from, d.records, recordName(claim.Namespace, claim.Name))
	if err != nil || secret == nil {
		return nil, err
	}
	return snapshotRecordOf(secret, claim)
}

// recordSnapshot records that a snapshot is taken, and deletes the Pod that has taken it. Nothing changes after that.
func (d *Driver) recordSnapshot(ctx context.Context, claim *corev1.PersistentVolumeClaim, pod *corev1.Pod, rec *snapshotRecord) error {
	secret := newSnapshotSecret(d.records, snapshotOf(claim), rec)
	err := d.client.Create(ctx, secret, client.FieldOwner(kube.FieldManager))
	if apierrors.IsAlreadyExists(err) { // the claim that it is of was lost
		err = d.client.Update(ctx, secret, client.FieldOwner(kube.FieldManager))
	}
	if err != nil {
		return typed("write the Secret "+secret.Name, err)
	}
	step("snapshot recorded")
	d.await(ctx, func() bool {
		seen, err := d.snapshotRecord(ctx, d.cache, claim)
		return err == nil && seen != nil
	})
	return d.endTake(ctx, pod)
}

// endTake deletes the Pod that takes a snapshot, or has taken it; nil if there is none. The watch says when it is gone.
func (d *Driver) endTake(ctx context.Context, pod *corev1.Pod) error {
	if pod == nil || pod.DeletionTimestamp != nil {
		return nil
	}
	if err := d.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}); err != nil && !apierrors.IsNotFound(err) {
		return typed("delete the Pod "+pod.Name, err)
	}
	step("take Pod deleted")
	d.await(ctx, func() bool {
		_, seen, err := d.seenSnapshot(ctx, snapshotOf(pod))
		return err == nil && (seen == nil || seen.UID != pod.UID || seen.DeletionTimestamp != nil)
	})
	return nil
}

// endTakes ends the attempts to take snapshots of a machine that is being deleted: a claim is not deleted while there is a Pod that uses it,
// even one that has ended. A snapshot that is complete is recorded. The error is an ErrInProgress until the Pods are gone.
func (d *Driver) endTakes(ctx context.Context, machine backend.Identity) error {
	var pods corev1.PodList
	if err := d.cache.List(ctx, &pods, client.InNamespace(machine.Namespace), client.MatchingLabelsSelector{Selector: ofSnapshots}); err != nil {
		return typed("list the Pods that take snapshots of the machine", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if ofSnapshot(pod).UID != machine.UID {
			continue
		}
		if result, _ := jobResult(pod); result.Taken != nil {
			if err := d.TakeSnapshot(ctx, snapshotOf(pod), backend.Source{Server: machine}); err != nil && !errors.Is(err, backend.ErrNotFound) {
				return err
			}
		}
		if err := d.endTake(ctx, pod); err != nil {
			return err
		}
		return fmt.Errorf("the attempt to take the snapshot %s of the machine is being ended: %w", snapshotOf(pod).Name, backend.ErrInProgress)
	}
	return nil
}

// DeleteSnapshot implements backend.SnapshotStore.
func (d *Driver) DeleteSnapshot(ctx context.Context, id backend.SnapshotIdentity) error {
	if err := d.check(); err != nil {
		return err
	}
	var pods corev1.PodList
	if err := d.client.List(ctx, &pods, client.InNamespace(id.Namespace), client.MatchingLabels{labelSnapshot: string(id.UID)}); err != nil {
		return typed("list the Pods that use the snapshot", err)
	}
	if len(pods.Items) > 0 {
		return d.endUse(ctx, id, &pods.Items[0])
	}
	claim, err := d.snapshotClaim(ctx, id)
	if err != nil {
		return err
	}
	if claim != nil {
		return d.deleteSnapshotClaim(ctx, claim)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: d.records, Name: recordName(id.Namespace, snapshotName(id.UID))}}
	if err := d.client.Delete(ctx, secret); err != nil && !apierrors.IsNotFound(err) {
		return typed("delete the Secret "+secret.Name, err)
	}
	step("snapshot record deleted")
	d.await(ctx, func() bool {
		claim, pod, err := d.seenSnapshot(ctx, id)
		return err == nil && claim == nil && pod == nil
	})
	return nil
}

// endUse ends an attempt to take a snapshot, or deletes another Pod that has failed to use it: the claim is not deleted while there is a Pod that
// uses it, even one that has ended. The error is an ErrInProgress, also while the snapshot is used.
func (d *Driver) endUse(ctx context.Context, id backend.SnapshotIdentity, pod *corev1.Pod) error {
	isTake := pod.Name == snapshotName(id.UID)
	if !isTake && pod.Status.Phase != corev1.PodFailed { // one that has succeeded is about to be recorded and deleted
		return fmt.Errorf("the Pod %s makes the disks of a machine of the snapshot %s: %w", pod.Name, id.Name, backend.ErrInProgress)
	}
	if err := d.endTake(ctx, pod); err != nil {
		return err
	}
	if !isTake {
		return fmt.Errorf("the Pod %s, which has failed, is being deleted: %w", pod.Name, backend.ErrInProgress)
	}
	return fmt.Errorf("the attempt to take the snapshot %s is being ended: %w", id.Name, backend.ErrInProgress)
}

// snapshotClaim returns the claim of a snapshot from the API server; nil if there is none.
func (d *Driver) snapshotClaim(ctx context.Context, id backend.SnapshotIdentity) (*corev1.PersistentVolumeClaim, error) {
	var list corev1.PersistentVolumeClaimList
	if err := d.client.List(ctx, &list, client.InNamespace(id.Namespace), client.MatchingLabels{labelSnapshot: string(id.UID)}); err != nil {
		return nil, typed("list the PersistentVolumeClaims of the snapshot", err)
	}
	for i := range list.Items {
		if list.Items[i].Name == snapshotName(id.UID) {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}

// deleteSnapshotClaim deletes the claim of a snapshot. The error is an ErrInProgress until it is gone.
func (d *Driver) deleteSnapshotClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if claim.DeletionTimestamp == nil {
		err := d.client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID})
		if err != nil && !apierrors.IsNotFound(err) {
			return typed("delete the PersistentVolumeClaim "+claim.Name, err)
		}
		step("snapshot claim deleted")
	}
	return fmt.Errorf("the PersistentVolumeClaim %s is being deleted: %w", claim.Name, backend.ErrInProgress)
}

// unlessInProgress returns an error, unless it means that the call continues in the background.
func unlessInProgress(err error) error {
	if errors.Is(err, backend.ErrInProgress) {
		return nil
	}
	return err
}
