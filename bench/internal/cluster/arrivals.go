package cluster

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Objects is what a client offers for the objects of a kind; L is a list of them.
type Objects[L metav1.ListInterface] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// Watch watches objects from now on. Errors call them by the plural.
func Watch[L metav1.ListInterface](ctx context.Context, plural string, objects Objects[L]) (watch.Interface, error) {
	list, err := objects.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", plural, err)
	}
	w, err := objects.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", plural, err)
	}
	return w, nil
}

// Observer sees when objects appear. It is the same for all contestants: the creation timestamps of the API know only
// seconds, and what a controller says of itself would have to be believed.
type Observer struct {
	plural string
	watch  watch.Interface
	seen   chan arrival
	// ended is why the watch has ended, if the API server says so; it is read when seen is closed.
	ended error
}

// room is for what is seen before anybody awaits it. In a channel that is full, what comes next would be seen too late.
const room = 100_000

// arrival is the moment at which an object was seen.
type arrival struct {
	name string
	at   time.Time
}

// Observe begins to watch objects, from now on. Errors call them by the plural.
func Observe[L metav1.ListInterface](ctx context.Context, plural string, objects Objects[L]) (*Observer, error) {
	w, err := Watch(ctx, plural, objects)
	if err != nil {
		return nil, err
	}
	o := &Observer{plural: plural, watch: w, seen: make(chan arrival, room)}
	go func() {
		defer close(o.seen)
		for event := range w.ResultChan() {
			if event.Type == watch.Error {
				o.ended = apierrors.FromObject(event.Object)
			}
			if event.Type != watch.Added {
				continue
			}
			if object, ok := event.Object.(metav1.Object); ok {
				o.seen <- arrival{name: object.GetName(), at: time.Now()}
			}
		}
	}()
	return o, nil
}

// Stop ends the watch.
func (o *Observer) Stop() {
	o.watch.Stop()
	for range o.seen { // so that the goroutine ends
	}
}

// Await waits for the next n objects to appear, and returns when each was seen, by name.
func (o *Observer) Await(ctx context.Context, n int) (map[string]time.Time, error) {
	at := make(map[string]time.Time, n)
	for len(at) < n {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d %s are there: %w", len(at), n, o.plural, context.Cause(ctx))
		case a, open := <-o.seen:
			if !open {
				if o.ended != nil {
					return nil, fmt.Errorf("the watch of %s has ended early: %w", o.plural, o.ended)
				}
				return nil, fmt.Errorf("the watch of %s has ended early: the API server has closed it", o.plural)
			}
			at[a.name] = a.at
		}
	}
	return at, nil
}
