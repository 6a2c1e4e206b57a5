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

// group are VirtualMachines that were created together, in a namespace of their own.
type group struct {
	namespace string
	began     time.Time // just before the first create
	pids      []int
}

// newVirtualMachine returns a machine with the default guest and its memory, and user data if it is not empty.
func newVirtualMachine(namespace string, i int, userData string) *v1alpha1.VirtualMachine {
	vm := &v1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("vm-%d", i)},
		Spec: v1alpha1.VirtualMachineSpec{Resource: v1alpha1.Resources{
			CPU: resource.MustParse("1"), Memory: resource.MustParse(fmt.Sprintf("%dMi", memory)),
		}},
	}
	if userData != "" {
		vm.Spec.CloudInit = &v1alpha1.CloudInit{UserData: userData}
	}
	return vm
}

// burst creates machines that only boot, waits until all are ready, and removes them.
func (b *bench) burst(ctx context.Context, s *harness.Sample) error {
	machines, err := b.create(ctx, s, "")
	if err != nil {
		return err
	}
	return errors.Join(setMachines(s, machines.pids), b.remove(ctx, s, machines.namespace))
}

// create creates machines with this user data and waits until all are ready.
func (b *bench) create(ctx context.Context, s *harness.Sample, userData string) (*group, error) {
	namespace, err := b.Namespace(ctx)
	if err != nil {
		return nil, err
	}
	return b.createIn(ctx, s, namespace, func(i int) *v1alpha1.VirtualMachine { return newVirtualMachine(namespace, i, userData) })
}

// createIn creates machines of the driver qemu in a namespace without others, and waits until all are ready.
func (b *bench) createIn(ctx context.Context, s *harness.Sample, namespace string, newMachine func(i int) *v1alpha1.VirtualMachine) (*group, error) {
	g, err := b.createReady(ctx, s, namespace, newMachine)
	if err != nil {
		return nil, err
	}
	if g.pids, err = b.machines(); err == nil && len(g.pids) != s.Size {
		err = fmt.Errorf("%d VirtualMachines are ready, and %d QEMUs run", s.Size, len(g.pids))
	}
	return g, err
}

// createReady creates machines in a namespace without others, and waits until all are ready.
func (b *bench) createReady(ctx context.Context, s *harness.Sample, namespace string, newMachine func(i int) *v1alpha1.VirtualMachine) (*group, error) {
	vms := b.Observer.Keelson.CloudnativeV1alpha1().VirtualMachines(namespace)
	w, err := harness.Watch(ctx, vms)
	if err != nil {
		return nil, err
	}
	const ready = "ready"
	o := harness.Observe(func(_ watch.EventType, object metav1.Object) ([]string, error) {
		vm := object.(*v1alpha1.VirtualMachine)
		if apimeta.IsStatusConditionTrue(vm.Status.Conditions, v1alpha1.ConditionReady) {
			return []string{ready}, nil
		}
		return nil, nil
	}, w)
	defer o.Stop()
	g := &group{namespace: namespace, began: time.Now()}
	err = b.Each(ctx, s.Size, func(ctx context.Context, writer harness.Connection, i int) error {
		_, err := writer.Keelson.CloudnativeV1alpha1().VirtualMachines(namespace).Create(ctx, newMachine(i), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return nil, err
	}
	seen, err := o.Await(ctx, ready, s.Size)
	if err != nil {
		return nil, errors.Join(err, b.explain(context.WithoutCancel(ctx), namespace))
	}
	s.SetSeen("ready", g.began, seen)
	return g, nil
}

// explain returns an error that says why a machine of a namespace is not ready.
func (b *bench) explain(ctx context.Context, namespace string) error {
	list, err := b.Observer.Keelson.CloudnativeV1alpha1().VirtualMachines(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, vm := range list.Items {
		if c := apimeta.FindStatusCondition(vm.Status.Conditions, v1alpha1.ConditionReady); c != nil && c.Status != metav1.ConditionTrue {
			return fmt.Errorf("the VirtualMachine %s is not ready: %s", vm.Name, c.Message)
		}
	}
	return nil
}

// remove deletes the machines of a namespace and waits until they are gone.
func (b *bench) remove(ctx context.Context, s *harness.Sample, namespace string) error {
	vms := b.Observer.Keelson.CloudnativeV1alpha1().VirtualMachines(namespace)
	began := time.Now()
	if err := harness.DeleteAll(ctx, vms); err != nil {
		return err
	}
	err := harness.Until(ctx, 100*time.Millisecond, func() error {
		left, err := vms.List(ctx, metav1.ListOptions{})
		if err != nil || len(left.Items) == 0 {
			return err
		}
		return fmt.Errorf("%d VirtualMachines still exist: %s", len(left.Items), left.Items[0].Status.Reason)
	})
	s.SetTimes("gone", time.Since(began))
	return err
}

// measureEmpty measures the memory of a manager without machines.
func (b *bench) measureEmpty(ctx context.Context) (err error) {
	b.Say("Watching a manager without machines for %s", b.idle)
	m, err := b.startManager(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Stop()) }()
	_, err = b.Idle(ctx, b.NewSample(steadyEmpty, 0, b.steady), m, b.idle)
	return err
}

// measureSteady measures machines that have nothing to do and their manager, and then kills it.
func (b *bench) measureSteady(ctx context.Context) (err error) {
	b.Say("Creating %d machines, and watching them for %s", b.steady, b.idle)
	m, err := b.startManager(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Stop(), b.endMachines(ctx)) }()
	s := b.NewSample(steadyFull, 0, b.steady)
	var machines *group
	err = m.During(ctx, func(ctx context.Context) (err error) {
		machines, err = b.fill(ctx, m, s)
		return err
	})
	if err != nil {
		return err
	}
	for round := range b.restarts {
		restart := b.NewSample(restarted, round, b.steady)
		served, err := b.Served(ctx)
		if err != nil {
			return err
		}
		if err := m.Kill(); err != nil {
			return err
		}
		began := time.Now()
		if m, err = b.startManager(ctx); err != nil {
			return fmt.Errorf("restart the manager: %w", err)
		}
		restart.SetTimes("started", time.Since(began))
		err = m.During(ctx, func(ctx context.Context) error {
			if err := awaitInCharge(ctx, m, b.steady); err != nil {
				return err
			}
			restart.SetTimes("in charge", time.Since(began))
			after, _, err := b.AwaitQuiet(ctx, b.quiet)
			restart.Requests = after.Since(served).Writes()
			return err
		})
		if err != nil {
			return fmt.Errorf("restart the manager: %w", err)
		}
		now, err := b.machines()
		if err != nil {
			return err
		}
		if err := setMachines(restart, now); err != nil {
			return err
		}
		b.Say("Restart %d of %d: in charge after %s", round+1, b.restarts, harness.Milliseconds(restart.Figures["in charge"][0]))
	}
	return b.remove(ctx, s, machines.namespace)
}

// fill creates machines, waits until nothing is written any more, and then watches them.
func (b *bench) fill(ctx context.Context, m *harness.Program, s *harness.Sample) (*group, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, waitTimeout+b.quiet+b.idle, errTimeout)
	defer cancel()
	before, err := b.Served(ctx)
	if err != nil {
		return nil, err
	}
	g, err := b.create(ctx, s, "")
	if err != nil {
		return nil, err
	}
	steady, last, err := b.AwaitQuiet(ctx, b.quiet)
	if err != nil {
		return nil, err
	}
	s.SetTimes("steady", last.Sub(g.began))
	s.Requests = steady.Since(before).Writes()
	network, err := b.network()
	if err != nil {
		return nil, err
	}
	used := harness.ProcessorTime(network)
	began := time.Now()
	requests, err := b.Idle(ctx, s, m, b.idle)
	s.Set("idle writes", requests.Writes().Total())
	s.Set("network busy", (harness.ProcessorTime(network)-used)/time.Since(began).Seconds())
	return g, errors.Join(err, setNetwork(s, network), setMachines(s, g.pids))
}

// awaitInCharge waits until the manager has figures of the guests of so many machines: for these it must have reached the
// monitor and the guest agent of each.
func awaitInCharge(ctx context.Context, m *harness.Program, n int) error {
	return harness.Until(ctx, 50*time.Millisecond, func() error { // to write the metrics takes time, too
		metrics, err := m.Metrics(ctx)
		if err != nil {
			return err
		}
		known := len(metrics.By("keelson_virtualmachine_cpu_seconds_total", "namespace", "name"))
		if known < n {
			return fmt.Errorf("the new manager knows of %d of %d machines", known, n)
		}
		return nil
	})
}
