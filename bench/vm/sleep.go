package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/bench/internal/harness"
)

// sleeper is a machine that falls asleep and wakes.
const sleeper = "sleep and wake"

// sleeperSizes are the sizes of these machines in MiB.
var sleeperSizes = []int{memory, 2048}

// measureSleep measures machines of both sizes that fall asleep and wake, one at a time.
func (b *bench) measureSleep(ctx context.Context) error {
	if len(*b.sizes) == 0 {
		return nil
	}
	return b.withManager(ctx, func(ctx context.Context) error {
		for _, size := range sleeperSizes {
			if err := b.measureSleeper(ctx, size); err != nil {
				return fmt.Errorf("a machine with %d MiB: %w", size, err)
			}
		}
		return nil
	})
}

// measureSleeper measures a machine of a size in MiB.
func (b *bench) measureSleeper(ctx context.Context, size int) error {
	namespace, err := b.Namespace(ctx)
	if err != nil {
		return err
	}
	starting, cancel := context.WithTimeoutCause(ctx, waitTimeout, errTimeout)
	defer cancel()
	alone := &harness.Sample{Size: 1}
	_, err = b.createIn(starting, alone, namespace, func(i int) *v1alpha1.VirtualMachine {
		vm := newVirtualMachine(namespace, i, "")
		vm.Spec.Resource.Memory = resource.MustParse(fmt.Sprintf("%dMi", size))
		return vm
	})
	if err != nil {
		return err
	}
	err = b.InTurns(b.Rounds, size, []string{sleeper}, "awake", func(s *harness.Sample) error {
		ctx, cancel := context.WithTimeoutCause(ctx, waitTimeout, errTimeout)
		defer cancel()
		return b.sleepAndWake(ctx, s, namespace)
	})
	return errors.Join(err, b.remove(ctx, alone, namespace))
}

// sleepAndWake puts the machine of a namespace to sleep, and wakes it.
func (b *bench) sleepAndWake(ctx context.Context, s *harness.Sample, namespace string) error {
	vms := b.Observer.Keelson.CloudnativeV1alpha1().VirtualMachines(namespace)
	w, err := harness.Watch(ctx, vms)
	if err != nil {
		return err
	}
	o := harness.Observe(func(_ watch.EventType, object metav1.Object) ([]string, error) {
		vm := object.(*v1alpha1.VirtualMachine)
		switch {
		case vm.Status.Server != nil && vm.Status.Server.State == v1alpha1.ServerAsleep:
			return []string{"asleep"}, nil
		case apimeta.IsStatusConditionTrue(vm.Status.Conditions, v1alpha1.ConditionReady):
			return []string{"awake"}, nil
		}
		return nil, nil
	}, w)
	defer o.Stop()
	for _, step := range []struct{ stage, action string }{{"asleep", "asleep"}, {"awake", "active"}} {
		o.Forget()
		began := time.Now()
		if _, err := vms.Patch(ctx, "vm-0", types.MergePatchType, []byte(`{"spec":{"action":"`+step.action+`"}}`), metav1.PatchOptions{}); err != nil {
			return err
		}
		seen, err := o.Await(ctx, step.stage, 1)
		if err != nil {
			return errors.Join(err, b.explain(context.WithoutCancel(ctx), namespace))
		}
		s.SetSeen(step.stage, began, seen)
	}
	return nil
}

// reportSleep prints how long machines take to fall asleep and to wake.
func (b *bench) reportSleep() {
	var rows [][]string
	for _, size := range sleeperSizes {
		of := b.Samples.Of(sleeper, size)
		if len(of) == 0 {
			continue
		}
		asleep, awake := of.Median("asleep", harness.Last), of.Median("awake", harness.Last)
		limit := asleepLimit + asleepLimitGiB*float64(size)/1024
		b.Target(fmt.Sprintf("%d MiB: asleep", size), "≤", limit, 1000*asleep, " ms", "its memory is on the disk, and QEMU has ended")
		b.Target(fmt.Sprintf("%d MiB: awake", size), "≤", awakeLimit, 1000*awake, " ms", "its agent has answered")
		rows = append(rows, []string{fmt.Sprintf("%d MiB", size), harness.Seconds(asleep), harness.Seconds(awake)})
	}
	if len(rows) > 0 {
		b.Printf("\n## Sleep and wake\n")
		b.Table([]string{"", "asleep", "awake"}, rows)
	}
}
