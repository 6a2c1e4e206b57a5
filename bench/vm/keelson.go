package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/bench/internal/harness"
)

// objectName is the name of the i-th VirtualMachine of a namespace.
func objectName(i int) string { return fmt.Sprintf("vm-%d", i) }

// burst creates machines, waits until all are ready, and removes them. Once for each size, and whenever there is only one, those
// that boot or are forks also sleep and wake. The first machines of a manager prepare others.
func (b *bench) burst(ctx context.Context, s *harness.Sample) (err error) {
	namespace, image := b.origin, &v1alpha1.Image{Snapshot: snapshotName}
	if s.Contestant != forked {
		image = nil
		if namespace, err = b.Namespace(ctx); err != nil {
			return err
		}
	}
	pids, err := b.create(ctx, s, namespace, image)
	if err != nil {
		return err
	}
	sleeper, sleeps := sleepers[s.Contestant]
	switch err = setMemory(s, pids); {
	case err != nil:
	case b.template == nil:
		err = b.learn(ctx, namespace, pids[0])
	case s.Contestant == instant:
		err = b.awaitTemplate(ctx)
	case sleeps && (s.Round == 0 || s.Size == 1):
		err = b.sleepAndWake(ctx, b.NewSample(sleeper, s.Round, s.Size), namespace)
	}
	return errors.Join(err, b.remove(ctx, s, namespace))
}

// ready is the stage of a machine that is ready.
const ready = "ready"

// create creates machines with the default guest and its memory, or another image, in a namespace without others. It waits until
// all are ready, and returns their processes.
func (b *bench) create(ctx context.Context, s *harness.Sample, namespace string, image *v1alpha1.Image) ([]int, error) {
	o, err := harness.Observe(ctx, b.Observer.Keelson.CloudnativeV1alpha1().VirtualMachines(namespace), func(_ watch.EventType, object metav1.Object) string {
		if apimeta.IsStatusConditionTrue(object.(*v1alpha1.VirtualMachine).Status.Conditions, v1alpha1.ConditionReady) {
			return ready
		}
		return ""
	})
	if err != nil {
		return nil, err
	}
	defer o.Stop()
	before, err := b.Served(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	err = b.Each(ctx, s.Size, func(ctx context.Context, writer harness.Connection, i int) error {
		_, err := writer.Keelson.CloudnativeV1alpha1().VirtualMachines(namespace).Create(ctx, &v1alpha1.VirtualMachine{
			ObjectMeta: metav1.ObjectMeta{Name: objectName(i)},
			Spec: v1alpha1.VirtualMachineSpec{Image: image, Resource: v1alpha1.Resources{
				CPU: resource.MustParse("1"), Memory: resource.MustParse(fmt.Sprintf("%dMi", memory)),
			}},
		}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return nil, err
	}
	seen, err := o.Await(ctx, ready, s.Size)
	if err != nil {
		return nil, err
	}
	s.SetSeen("ready", began, seen)
	after, err := b.Served(ctx)
	if err != nil {
		return nil, err
	}
	s.SetWrites(after.Since(before))
	pids, err := b.machines()
	if err == nil && len(pids) != s.Size {
		err = fmt.Errorf("%d VirtualMachines are ready, and %d QEMUs run", s.Size, len(pids))
	}
	return pids, err
}

// remove deletes the machines of a namespace and waits until they are gone.
func (b *bench) remove(ctx context.Context, s *harness.Sample, namespace string) error {
	vms := b.Observer.Keelson.CloudnativeV1alpha1().VirtualMachines(namespace)
	began := time.Now()
	if err := harness.DeleteAll(ctx, vms); err != nil {
		return err
	}
	err := harness.Until(ctx, harness.PollInterval, func() error {
		left, err := vms.List(ctx, metav1.ListOptions{})
		if err != nil || len(left.Items) == 0 {
			return err
		}
		return fmt.Errorf("%d VirtualMachines still exist: %s", len(left.Items), left.Items[0].Status.Reason)
	})
	s.SetTimes("gone", time.Since(began))
	return err
}
