package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/bench/internal/harness"
	"github.com/keelson-dev/keelson/internal/manager"
)

// snapshotName is the snapshot that the forks are made of.
const snapshotName = "running"

// learn takes the template of bare machines from the process of the first machine, and a snapshot with its memory for forks.
func (b *bench) learn(ctx context.Context, namespace string, pid int) (err error) {
	if b.template, err = newTemplate(pid); err != nil {
		return fmt.Errorf("learn the arguments of QEMU: %w", err)
	}
	if slices.ContainsFunc(b.template.arguments, func(a string) bool { return strings.HasPrefix(a, "tcg") }) {
		b.Note("the CPUs of the guests are emulated")
	}
	b.origin = namespace
	snapshots := b.Observer.Keelson.CloudnativeV1alpha1().VirtualMachineSnapshots(namespace)
	wanted := &v1alpha1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: snapshotName}, Spec: v1alpha1.VirtualMachineSnapshotSpec{VirtualMachineName: objectName(0), Memory: true},
	}
	if _, err := snapshots.Create(ctx, wanted, metav1.CreateOptions{}); err != nil {
		return err
	}
	return harness.Until(ctx, harness.PollInterval, func() error {
		taken, err := snapshots.Get(ctx, snapshotName, metav1.GetOptions{})
		if err == nil && !apimeta.IsStatusConditionTrue(taken.Status.Conditions, v1alpha1.ConditionReady) {
			err = errors.New("the snapshot is not taken yet")
		}
		return err
	})
}

// awaitTemplate waits until machines can start from a template.
func (b *bench) awaitTemplate(ctx context.Context) error {
	return harness.Until(ctx, harness.PollInterval, func() error {
		found, err := filepath.Glob(filepath.Join(manager.MachinesDir(b.stateDir()), "templates", "*", "template.json"))
		if err == nil && len(found) == 0 {
			err = errors.New("there is no template yet")
		}
		return err
	})
}

// The stages of machines that sleep.
const (
	asleep = "asleep"
	awake  = "awake"
)

func sleepStage(_ watch.EventType, object metav1.Object) string {
	vm := object.(*v1alpha1.VirtualMachine)
	switch {
	case vm.Status.Server != nil && vm.Status.Server.State == v1alpha1.ServerAsleep:
		return asleep
	case apimeta.IsStatusConditionTrue(vm.Status.Conditions, v1alpha1.ConditionReady):
		return awake
	}
	return ""
}

// sleepAndWake puts all machines of a namespace to sleep, and wakes them. It measures how long that takes, and their memory then.
func (b *bench) sleepAndWake(ctx context.Context, s *harness.Sample, namespace string) error {
	for _, step := range []struct{ stage, action, figure string }{{asleep, "asleep", asleep}, {awake, "active", ready}} {
		o, err := harness.Observe(ctx, b.Observer.Keelson.CloudnativeV1alpha1().VirtualMachines(namespace), sleepStage)
		if err != nil {
			return err
		}
		defer o.Stop()
		began := time.Now()
		err = b.Each(ctx, s.Size, func(ctx context.Context, writer harness.Connection, i int) error {
			_, err := writer.Keelson.CloudnativeV1alpha1().VirtualMachines(namespace).Patch(ctx, objectName(i),
				types.MergePatchType, []byte(`{"spec":{"action":"`+step.action+`"}}`), metav1.PatchOptions{})
			return err
		})
		if err != nil {
			return err
		}
		seen, err := o.Await(ctx, step.stage, s.Size)
		if err != nil {
			return err
		}
		s.SetSeen(step.figure, began, seen)
	}
	pids, err := b.machines()
	if err == nil && len(pids) != s.Size {
		err = fmt.Errorf("%d machines are awake, and %d QEMUs run", s.Size, len(pids))
	}
	return errors.Join(err, setMemory(s, pids))
}
