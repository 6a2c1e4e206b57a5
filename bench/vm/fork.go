package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/bench/internal/harness"
)

// snapshotName is the snapshot that the forks are made of.
const snapshotName = "running"

// measureForks measures machines that go on with the memory of another one, which is in a snapshot.
func (b *bench) measureForks(ctx context.Context) error {
	if len(*b.sizes) == 0 {
		return nil
	}
	return b.withManager(ctx, func(ctx context.Context) error {
		namespace, err := b.takeSnapshot(ctx)
		if err != nil {
			return fmt.Errorf("take a snapshot: %w", err)
		}
		newFork := func(i int) *v1alpha1.VirtualMachine {
			vm := newVirtualMachine(namespace, i, "")
			vm.Spec.Image = &v1alpha1.Image{Snapshot: snapshotName}
			return vm
		}
		err = b.inSizes(ctx, []string{forked}, func(ctx context.Context, s *harness.Sample) error {
			forks, err := b.createIn(ctx, s, namespace, newFork)
			if err != nil {
				return err
			}
			err = setMachines(s, forks.pids)
			if err == nil && s.Round == 0 {
				err = b.measureWoken(ctx, s.Size, namespace)
			}
			return errors.Join(err, b.remove(ctx, s, namespace))
		})
		if err != nil {
			return err
		}
		snapshots := b.Observer.Keelson.CloudnativeV1alpha1().VirtualMachineSnapshots(namespace)
		return snapshots.Delete(ctx, snapshotName, metav1.DeleteOptions{})
	})
}

// measureWoken puts the forks of a namespace to sleep and wakes them, all at once, and measures the memory that they then have.
func (b *bench) measureWoken(ctx context.Context, n int, namespace string) error {
	s := b.NewSample(woken, 0, n)
	if err := b.sleepAndWake(ctx, s, n, namespace); err != nil {
		return err
	}
	s.Set("ready", s.Figures["awake"]...)
	pids, err := b.machines()
	if err == nil && len(pids) != n {
		err = fmt.Errorf("%d forks are awake, and %d QEMUs run", n, len(pids))
	}
	return errors.Join(err, setMachines(s, pids))
}

// takeSnapshot takes a snapshot with memory of a machine, which it removes. It returns the namespace.
func (b *bench) takeSnapshot(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, waitTimeout, errTimeout)
	defer cancel()
	s := &harness.Sample{Size: 1}
	source, err := b.create(ctx, s, "")
	if err != nil {
		return "", err
	}
	snapshots := b.Observer.Keelson.CloudnativeV1alpha1().VirtualMachineSnapshots(source.namespace)
	wanted := &v1alpha1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: snapshotName}, Spec: v1alpha1.VirtualMachineSnapshotSpec{VirtualMachineName: "vm-0", Memory: true},
	}
	if _, err := snapshots.Create(ctx, wanted, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	err = harness.Until(ctx, 100*time.Millisecond, func() error {
		taken, err := snapshots.Get(ctx, snapshotName, metav1.GetOptions{})
		if err == nil && !apimeta.IsStatusConditionTrue(taken.Status.Conditions, v1alpha1.ConditionReady) {
			err = errors.New("it is not taken yet")
		}
		return err
	})
	return source.namespace, errors.Join(err, b.remove(ctx, s, source.namespace))
}
