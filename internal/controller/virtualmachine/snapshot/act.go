package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
)

// act carries out the plan.
func (r *Reconciler) act(ctx context.Context, s *v1alpha1.VirtualMachineSnapshot, seen observation, p plan) error {
	calling, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	switch p.action {
	case claim:
		if slices.Contains(s.Finalizers, v1alpha1.SnapshotFinalizer) {
			return nil // the status records the host
		}
		return kube.SetFinalizers(ctx, r.client, s, append(slices.Clone(s.Finalizers), v1alpha1.SnapshotFinalizer))
	case take:
		if err := r.checkLive(ctx, s); err != nil {
			return err
		}
		of := backend.Source{Server: seen.of, Memory: s.Spec.Memory}
		err := seen.store.TakeSnapshot(calling, seen.id, of)
		if errors.Is(err, backend.ErrNotRunning) && s.Labels[v1alpha1.LabelScheduledBy] != "" {
			of.Memory = false // a machine that is off is whole without
			if again := seen.store.TakeSnapshot(calling, seen.id, of); !errors.Is(again, backend.ErrNoDisks) {
				err = again
			}
		}
		if err != nil {
			return fmt.Errorf("take the snapshot %s/%s: %w", s.Namespace, s.Name, err)
		}
	case remove:
		if seen.store != nil {
			if err := seen.store.DeleteSnapshot(calling, seen.id); err != nil {
				return fmt.Errorf("delete the snapshot %s/%s: %w", s.Namespace, s.Name, err)
			}
		}
		log.FromContext(ctx).Info("Deleted the snapshot")
		return kube.SetFinalizers(ctx, r.client, s, slices.DeleteFunc(slices.Clone(s.Finalizers), func(f string) bool { return f == v1alpha1.SnapshotFinalizer }))
	}
	return nil
}

// checkLive compares the cached object with the API server before a snapshot is taken. The files of one that is deleted would be
// left over.
func (r *Reconciler) checkLive(ctx context.Context, s *v1alpha1.VirtualMachineSnapshot) error {
	var now v1alpha1.VirtualMachineSnapshot
	return kube.CheckLive(ctx, r.live, kind.Kind, s, &now, func() bool { return !now.DeletionTimestamp.IsZero() || now.Status.TakenAt != nil })
}
