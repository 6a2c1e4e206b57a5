package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/bench/internal/cluster"
	"github.com/keelson-dev/keelson/bench/internal/measure"
)

// group are VirtualMachines that were created together, in a namespace of their own.
type group struct {
	b         *bench
	namespace string
	// began is just before the first create; ready is from then on, for each.
	began time.Time
	ready []time.Duration
	uuids []string
}

// burstOfKeelson creates VirtualMachines and waits until they are ready.
func (b *bench) burstOfKeelson(ctx context.Context, n int) (*burst, error) {
	group, err := b.create(ctx, n)
	if err != nil {
		return nil, err
	}
	result := &burst{Ready: measure.Distribute(group.ready)}
	machines, err := group.machines()
	if err != nil {
		return nil, err
	}
	if err := result.costs(machines); err != nil {
		return nil, err
	}
	result.Gone, err = group.remove(ctx)
	return result, err
}

// newVirtualMachine returns the machine of a number: the default guest and its memory, and nothing else.
func newVirtualMachine(namespace string, i int) *v1alpha1.VirtualMachine {
	return &v1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("vm-%d", i)},
		Spec: v1alpha1.VirtualMachineSpec{Resource: v1alpha1.Resources{
			CPU: resource.MustParse("1"), Memory: resource.MustParse(fmt.Sprintf("%dMi", memory)),
		}},
	}
}

// create creates machines and waits until all are ready.
func (b *bench) create(ctx context.Context, n int) (*group, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	namespace, err := b.cluster.Namespace(ctx)
	if err != nil {
		return nil, err
	}
	seen, err := cluster.Watch(ctx, "VirtualMachines", b.cluster.Observer.Keelson.CloudnativeV1alpha1().VirtualMachines(namespace))
	if err != nil {
		return nil, err
	}
	defer seen.Stop()
	g := &group{b: b, namespace: namespace, began: time.Now()}
	creating := make(chan error, 1)
	go func() {
		err := b.cluster.Each(ctx, n, func(ctx context.Context, writer cluster.Connection, i int) error {
			_, err := writer.Keelson.CloudnativeV1alpha1().VirtualMachines(namespace).Create(ctx, newVirtualMachine(namespace, i), metav1.CreateOptions{})
			return err
		})
		if err != nil {
			cancel(err)
		}
		creating <- err
	}()
	at, waiting := map[string]time.Time{}, map[string]string{}
	for len(at) < n {
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("%d of %d machines are ready: %w; of the others: %v", len(at), n, context.Cause(ctx), waiting), <-creating)
		case event, open := <-seen.ResultChan():
			vm, is := event.Object.(*v1alpha1.VirtualMachine)
			if !open || !is {
				return nil, fmt.Errorf("the watch of VirtualMachines has ended early: %v", event.Object)
			}
			ready := meta.FindStatusCondition(vm.Status.Conditions, v1alpha1.ConditionReady)
			switch {
			case ready == nil || !at[vm.Name].IsZero():
			case ready.Status == metav1.ConditionTrue:
				at[vm.Name] = time.Now()
				g.uuids = append(g.uuids, string(vm.UID))
				delete(waiting, vm.Name)
			default:
				waiting[vm.Name] = ready.Message
			}
		}
	}
	for _, when := range at {
		g.ready = append(g.ready, when.Sub(g.began))
	}
	if err := <-creating; err != nil {
		return nil, err
	}
	machines, err := g.machines()
	if err != nil {
		return nil, err
	}
	b.results.Emulated = slices.ContainsFunc(machines[0].arguments, func(a string) bool { return strings.HasPrefix(a, "tcg") })
	return g, nil
}

// machines returns the processes of the group.
func (g *group) machines() ([]machine, error) { return findMachines(g.uuids) }

// remove deletes the machines and returns how long that took.
func (g *group) remove(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	if err := g.b.deleteAll(ctx, g.namespace); err != nil {
		return 0, err
	}
	return time.Since(began), nil
}

// deleteAll deletes the machines of a namespace and waits until there are none.
func (b *bench) deleteAll(ctx context.Context, namespace string) error {
	api := b.cluster.Observer.Keelson.CloudnativeV1alpha1()
	list, err := api.VirtualMachines(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list VirtualMachines: %w", err)
	}
	err = b.cluster.Each(ctx, len(list.Items), func(ctx context.Context, writer cluster.Connection, i int) error {
		vm := &list.Items[i]
		return writer.Keelson.CloudnativeV1alpha1().VirtualMachines(vm.Namespace).Delete(ctx, vm.Name, metav1.DeleteOptions{})
	})
	if err != nil {
		return fmt.Errorf("delete VirtualMachines: %w", err)
	}
	return cluster.Until(ctx, func(ctx context.Context) error {
		left, err := api.VirtualMachines(namespace).List(ctx, metav1.ListOptions{})
		if err != nil || len(left.Items) == 0 {
			return err
		}
		return fmt.Errorf("%d VirtualMachines are not gone, one because: %s", len(left.Items), left.Items[0].Status.Reason)
	})
}
