package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// observer sees when Jobs appear in a namespace. It is the same for all contestants: the creation timestamps of the
// API know only seconds, and what a controller says of itself would have to be believed.
type observer struct {
	watch watch.Interface
	seen  chan arrival
}

// arrival is the moment at which a Job was seen.
type arrival struct {
	name string
	at   time.Time
}

// observe begins to watch the Jobs of a namespace, from now on.
func (b *bench) observe(ctx context.Context, namespace string) (*observer, error) {
	jobs := b.cluster.Observer.Kube.BatchV1().Jobs(namespace)
	list, err := jobs.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, fmt.Errorf("list Jobs: %w", err)
	}
	w, err := jobs.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return nil, fmt.Errorf("watch Jobs: %w", err)
	}
	o := &observer{watch: w, seen: make(chan arrival, maxObjects)}
	go func() {
		defer close(o.seen)
		for event := range w.ResultChan() {
			if event.Type != watch.Added {
				continue
			}
			if job, ok := event.Object.(*batchv1.Job); ok {
				o.seen <- arrival{name: job.Name, at: time.Now()}
			}
		}
	}()
	return o, nil
}

// stop ends the watch.
func (o *observer) stop() {
	o.watch.Stop()
	for range o.seen { // so that the goroutine ends
	}
}

// await returns the next n arrivals.
func (o *observer) await(ctx context.Context, n int) (map[string]time.Time, error) {
	at := make(map[string]time.Time, n)
	for len(at) < n {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d Jobs are there: %w", len(at), n, context.Cause(ctx))
		case a, open := <-o.seen:
			if !open {
				return nil, errors.New("the watch of Jobs has ended early")
			}
			at[a.name] = a.at
		}
	}
	return at, nil
}
