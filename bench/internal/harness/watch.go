package harness

import (
	"context"
	"encoding/json"
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
	"k8s.io/client-go/tools/cache"
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
	// Stop ends the watch.
	Stop func()

	mu      sync.Mutex
	changed chan struct{} // closed and replaced after each event
	seen    map[string]map[string]time.Time
	last    metav1.Object // of an event
	err     error
}

// Stage names the stage that the object of an event has reached, if any.
type Stage func(event watch.EventType, object metav1.Object) string

// Created is the stage of an object that was added.
func Created(event watch.EventType, _ metav1.Object) string { return string(event) }

// Observe observes objects of a kind from now on, until the observer is stopped.
func Observe[L List](ctx context.Context, objects Objects[L], stage Stage) (*Observer, error) {
	list, err := objects.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	// A busy API server ends watches that are slow; this goes on with another one.
	w, err := watchtools.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), &cache.ListWatch{WatchFuncWithContext: objects.Watch})
	if err != nil {
		return nil, err
	}
	return follow(w, stage), nil
}

func follow(w watch.Interface, stage Stage) *Observer {
	o := &Observer{changed: make(chan struct{}), seen: map[string]map[string]time.Time{}}
	var all sync.WaitGroup
	all.Go(func() {
		for event := range w.ResultChan() {
			o.see(event, time.Now(), stage)
		}
		o.fail(errors.New("the watch has ended early"))
	})
	o.Stop = func() {
		w.Stop()
		all.Wait()
	}
	return o
}

func (o *Observer) see(event watch.Event, at time.Time, stage Stage) {
	object, isObject := event.Object.(metav1.Object)
	if !isObject {
		o.fail(fmt.Errorf("the watch has ended early: %w", apierrors.FromObject(event.Object)))
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = object
	reached := stage(event.Type, object)
	if o.seen[reached] == nil {
		o.seen[reached] = map[string]time.Time{}
	}
	if o.seen[reached][object.GetName()].IsZero() {
		o.seen[reached][object.GetName()] = at
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

// Await waits until n objects have reached a stage, unless nothing happens for five minutes. It returns when each was seen
// there first, by name.
func (o *Observer) Await(ctx context.Context, stage string, n int) (map[string]time.Time, error) {
	for {
		o.mu.Lock()
		have, changed, err := len(o.seen[stage]), o.changed, o.err
		if have >= n {
			seen := maps.Clone(o.seen[stage])
			o.mu.Unlock()
			return seen, nil
		}
		o.mu.Unlock()
		if err == nil {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				err = context.Cause(ctx)
			case <-time.After(waitTimeout):
				err = fmt.Errorf("nothing has happened for %s", waitTimeout)
			}
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		last, _ := json.Marshal(o.last) // only for the message
		return nil, fmt.Errorf("%d of %d objects are %s: %w; seen last: %s", have, n, stage, err, last)
	}
}
