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

const (
	// sleeper is a machine that falls asleep and wakes.
	sleeper = "sleep and wake"
	// idler is one that is woken by a connection.
	idler = "wake by a connection"
)

// sleeperSizes are the sizes of these machines in MiB.
var sleeperSizes = []int{memory, 2048}

// measureSleep measures machines of both sizes that fall asleep and wake, one at a time.
func (b *bench) measureSleep(ctx context.Context) error {
	if len(*b.sizes) == 0 {
		return nil
	}
	return b.withManager(ctx, func(ctx context.Context) error {
		if err := b.measureIdle(ctx); err != nil {
			return fmt.Errorf("an idle machine: %w", err)
		}
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
	return b.withReachable(ctx, func(vm *v1alpha1.VirtualMachine) {
		vm.Spec.Resource.Memory = resource.MustParse(fmt.Sprintf("%dMi", size))
	}, func(namespace, address string) error {
		return b.InTurns(b.Rounds, size, []string{sleeper}, "awake", func(s *harness.Sample) error {
			ctx, cancel := context.WithTimeoutCause(ctx, waitTimeout, errTimeout)
			defer cancel()
			if err := b.sleepAndWake(ctx, s, 1, namespace); err != nil {
				return err
			}
			again := &harness.Sample{} // a login would delay the agent
			err := b.sleepAndWake(ctx, again, 1, namespace, func(ctx context.Context) error { return b.prompt(ctx, address) })
			s.Set("prompt", again.Figures["prompt"]...)
			return err
		})
	})
}

// measureIdle has connections wake a machine that sleeps whenever it is idle.
func (b *bench) measureIdle(ctx context.Context) error {
	if b.connections == 0 {
		return nil
	}
	return b.withReachable(ctx, func(vm *v1alpha1.VirtualMachine) {
		vm.Spec.Idle = &v1alpha1.VirtualMachineIdle{SleepAfter: metav1.Duration{Duration: time.Minute}} // the shortest
	}, func(namespace, address string) error {
		return b.InTurns(b.connections, aloneSize, []string{idler}, "first byte", func(s *harness.Sample) error {
			ctx, cancel := context.WithTimeoutCause(ctx, waitTimeout, errTimeout)
			defer cancel()
			o, err := b.observePower(ctx, namespace)
			if err != nil {
				return err
			}
			defer o.Stop()
			if _, err := o.Await(ctx, asleep, 1); err != nil {
				return err
			}
			o.Forget()
			began := time.Now()
			if err := awaitGreeting(ctx, address); err != nil {
				return err
			}
			s.SetTimes("first byte", time.Since(began))
			_, err = o.Await(ctx, awake, 1)
			return err
		})
	})
}

// awaitGreeting connects to an SSH server and waits for the first byte.
func awaitGreeting(ctx context.Context, address string) error {
	conn, err := dial(ctx, address)
	if err != nil {
		return err
	}
	defer closeAtEnd(ctx, conn)()
	_, err = conn.Read(make([]byte, 1))
	return err
}

// withReachable does work with a machine that is ready, and whose SSH server answers at the address. It removes the machine.
func (b *bench) withReachable(ctx context.Context, change func(*v1alpha1.VirtualMachine), work func(namespace, address string) error) error {
	namespace, err := b.Namespace(ctx)
	if err != nil {
		return err
	}
	starting, cancel := context.WithTimeoutCause(ctx, waitTimeout, errTimeout)
	defer cancel()
	alone := &harness.Sample{Size: 1}
	_, err = b.createIn(starting, alone, namespace, func(i int) *v1alpha1.VirtualMachine {
		vm := b.newReachable(namespace, i)
		change(vm)
		return vm
	})
	if err != nil {
		return err
	}
	var address string
	err = harness.Until(starting, 50*time.Millisecond, func() (err error) {
		if address, err = b.endpoint(starting, namespace); err == nil {
			err = b.prompt(starting, address)
		}
		return err
	})
	if err == nil {
		err = work(namespace, address)
	}
	return errors.Join(err, b.remove(ctx, alone, namespace))
}

// The stages of machines that sleep.
const (
	asleep = "asleep"
	awake  = "awake"
)

// observePower observes the machines of a namespace.
func (b *bench) observePower(ctx context.Context, namespace string) (*harness.Observer, error) {
	w, err := harness.Watch(ctx, b.Observer.Keelson.CloudnativeV1alpha1().VirtualMachines(namespace))
	if err != nil {
		return nil, err
	}
	return harness.Observe(func(_ watch.EventType, object metav1.Object) ([]string, error) {
		vm := object.(*v1alpha1.VirtualMachine)
		switch {
		case vm.Status.Server != nil && vm.Status.Server.State == v1alpha1.ServerAsleep:
			return []string{asleep}, nil
		case apimeta.IsStatusConditionTrue(vm.Status.Conditions, v1alpha1.ConditionReady):
			return []string{awake}, nil
		}
		return nil, nil
	}, w), nil
}

// sleepAndWake puts the n machines of a namespace to sleep, and wakes them. It repeats prompts, which log in to a machine, until
// they succeed.
func (b *bench) sleepAndWake(ctx context.Context, s *harness.Sample, n int, namespace string, prompts ...func(context.Context) error) error {
	o, err := b.observePower(ctx, namespace)
	if err != nil {
		return err
	}
	defer o.Stop()
	var began time.Time
	for _, step := range []struct{ stage, action string }{{asleep, "asleep"}, {awake, "active"}} {
		o.Forget()
		began = time.Now()
		err := b.Each(ctx, n, func(ctx context.Context, writer harness.Connection, i int) error {
			_, err := writer.Keelson.CloudnativeV1alpha1().VirtualMachines(namespace).Patch(ctx, fmt.Sprintf("vm-%d", i),
				types.MergePatchType, []byte(`{"spec":{"action":"`+step.action+`"}}`), metav1.PatchOptions{})
			return err
		})
		if err != nil {
			return err
		}
		if step.stage == awake {
			for _, prompt := range prompts {
				if err := harness.Until(ctx, 5*time.Millisecond, func() error { return prompt(ctx) }); err != nil {
					return err
				}
				s.SetTimes("prompt", time.Since(began))
			}
		}
		seen, err := o.Await(ctx, step.stage, n)
		if err != nil {
			return errors.Join(err, b.explain(context.WithoutCancel(ctx), namespace))
		}
		s.SetSeen(step.stage, began, seen)
	}
	return nil
}

// reportSleep reports how long machines take to fall asleep and to wake.
func (b *bench) reportSleep() {
	var rows [][]string
	for _, size := range sleeperSizes {
		of := b.Samples.Of(sleeper, size)
		if len(of) == 0 {
			continue
		}
		slept, woke := of.Median(asleep, harness.Last), of.Median(awake, harness.Last)
		limit := asleepLimit + asleepLimitGiB*float64(size)/1024
		b.Target(fmt.Sprintf("%d MiB: asleep", size), "≤", limit, 1000*slept, " ms", "its memory is on the disk, and QEMU has ended")
		b.Target(fmt.Sprintf("%d MiB: awake", size), "≤", awakeLimit, 1000*woke, " ms", "its agent has answered")
		rows = append(rows, []string{fmt.Sprintf("%d MiB", size), harness.Seconds(slept), harness.Seconds(woke),
			harness.Seconds(of.Median("prompt", harness.Last))})
	}
	if len(rows) > 0 {
		b.Printf("\n## Sleep and wake\n")
		b.Table([]string{"", "asleep", "awake", "SSH prompt"}, rows)
	}
	if answers := b.Samples.Of(idler, aloneSize).Pool("first byte"); len(answers) > 0 {
		of := harness.NewSpread(answers)
		b.Target("1 idle machine: first byte of a connection that wakes it", "≤", answerLimit, 1000*of.Median, " ms",
			fmt.Sprintf("from %.0f to %.0f ms, the greeting of its SSH server", 1000*of.Min, 1000*of.Max))
	}
}
