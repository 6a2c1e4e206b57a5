package snapshot

import (
	"context"
	"errors"
	"fmt"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
)

// Ensure implements external.Kind: it takes the snapshot.
func (r *Reconciler) Ensure(ctx context.Context, s *v1alpha1.VirtualMachineSnapshot, seen observation) error {
	if err := r.checkLive(ctx, s); err != nil {
		return err
	}
	of := backend.Source{Server: seen.of, Memory: s.Spec.Memory}
	err := seen.store.TakeSnapshot(ctx, seen.id, of)
	if errors.Is(err, backend.ErrNotRunning) && s.Labels[v1alpha1.LabelScheduledBy] != "" {
		of.Memory = false // a machine that is off is whole without
		if again := seen.store.TakeSnapshot(ctx, seen.id, of); !errors.Is(again, backend.ErrNoDisks) {
			err = again
		}
	}
	if err != nil {
		return fmt.Errorf("take the snapshot %s/%s: %w", s.Namespace, s.Name, err)
	}
	return nil
}

// Delete implements external.Kind.
func (r *Reconciler) Delete(ctx context.Context, s *v1alpha1.VirtualMachineSnapshot, seen observation) error {
	if seen.store == nil {
		return nil
	}
	if err := seen.store.DeleteSnapshot(ctx, seen.id); err != nil {
		return fmt.Errorf("delete the snapshot %s/%s: %w", s.Namespace, s.Name, err)
	}
	return nil
}

// checkLive compares the cached object with the API server before a snapshot is taken. The files of one that is deleted would be
// left over.
func (r *Reconciler) checkLive(ctx context.Context, s *v1alpha1.VirtualMachineSnapshot) error {
	var now v1alpha1.VirtualMachineSnapshot
	return kube.CheckLive(ctx, r.Live, kind.Kind, s, &now, func() bool { return !now.DeletionTimestamp.IsZero() || now.Status.TakenAt != nil })
}
