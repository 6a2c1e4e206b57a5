package harness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	watchtools "k8s.io/client-go/tools/watch"
)

// List is a list of objects of a kind.
type List interface {
	metav1.ListInterface
	runtime.Object
}

// Objects is what a typed client offers for the objects of a kind.
type Objects[L List] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// Watch watches objects from now on. A busy API server ends watches that are slow, so it goes on with another one.
func Watch[L List](ctx context.Context, objects Objects[L]) (watch.Interface, error) {
	list, err := objects.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	return watchtools.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), watcher(objects.Watch))
}

// watcher is a function that begins a watch.
type watcher func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)

// WatchWithContext implements cache.WatcherWithContext.
func (w watcher) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return w(ctx, opts)
}

// DeleteAll deletes objects, over many requests at a time.
func DeleteAll[L List](ctx context.Context, objects Objects[L]) error {
	list, err := objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	background := metav1.DeletePropagationBackground
	err = meta.EachListItem(list, func(item runtime.Object) error {
		group.Go(func() error {
			return objects.Delete(ctx, item.(metav1.Object).GetName(), metav1.DeleteOptions{PropagationPolicy: &background})
		})
		return nil
	})
	return errors.Join(err, group.Wait())
}

// Observer records when objects reach a stage, such as their creation or readiness. It is the same for all contestants:
// timestamps in the API have a resolution of a second, and what a controller says of itself would have to be believed.
type Observer struct {
	stop func()

	mu      sync.Mutex
	changed chan struct{} // closed and replaced after each event
	seen    map[string]map[string]time.Time
	err     error
}

// Observe follows watches until the observer is stopped. The function names the stages that the object of an event has
// reached; its error ends every Await.
func Observe(stages func(event watch.EventType, object metav1.Object) ([]string, error), watches ...watch.Interface) *Observer {
	o := &Observer{changed: make(chan struct{}), seen: map[string]map[string]time.Time{}}
	var all sync.WaitGroup
	for _, w := range watches {
		all.Go(func() {
			for event := range w.ResultChan() {
				o.see(event, time.Now(), stages)
			}
			o.fail(errors.New("a watch has ended early"))
		})
	}
	o.stop = func() {
		for _, w := range watches {
			w.Stop()
		}
		all.Wait()
	}
	return o
}

// ObserveCreation observes objects of a kind from now on; the stage is Created.
func ObserveCreation[L List](ctx context.Context, objects Objects[L]) (*Observer, error) {
	w, err := Watch(ctx, objects)
	if err != nil {
		return nil, err
	}
	return Observe(func(event watch.EventType, _ metav1.Object) ([]string, error) {
		if event == watch.Added {
			return []string{Created}, nil
		}
		return nil, nil
	}, w), nil
}

// Created is the stage of an object that exists.
const Created = "created"

// Stop ends the watches.
func (o *Observer) Stop() { o.stop() }

func (o *Observer) see(event watch.Event, at time.Time, stages func(watch.EventType, metav1.Object) ([]string, error)) {
	object, isObject := event.Object.(metav1.Object)
	if !isObject {
		o.fail(fmt.Errorf("a watch has ended early: %w", apierrors.FromObject(event.Object)))
		return
	}
	reached, err := stages(event.Type, object)
	if err != nil {
		o.fail(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, stage := range reached {
		if o.seen[stage] == nil {
			o.seen[stage] = map[string]time.Time{}
		}
		if o.seen[stage][object.GetName()].IsZero() {
			o.seen[stage][object.GetName()] = at
		}
	}
	o.wake()
}

func (o *Observer) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
	o.wake()
}

func (o *Observer) wake() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// Await waits until n objects have reached a stage. It returns when each was seen there first, by name.
func (o *Observer) Await(ctx context.Context, stage string, n int) (map[string]time.Time, error) {
	for {
		o.mu.Lock()
		have, changed, err := len(o.seen[stage]), o.changed, o.err
		o.mu.Unlock()
		if have >= n {
			return o.Seen(stage), nil
		}
		if err != nil {
			return nil, fmt.Errorf("%d of %d objects are %s: %w", have, n, stage, err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d objects are %s: %w", have, n, stage, context.Cause(ctx))
		case <-changed:
		}
	}
}

// Seen returns when objects were first seen in a stage, by name.
func (o *Observer) Seen(stage string) map[string]time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.seen[stage])
}

// Forget makes the observer see all objects anew.
func (o *Observer) Forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.seen)
}
