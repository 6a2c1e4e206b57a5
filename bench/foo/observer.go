package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// observer sees when Deployments appear in a namespace.
type observer struct {
	watch watch.Interface
	seen  chan arrival
}

// arrival is the moment at which a Deployment was seen.
type arrival struct {
	name string
	at   time.Time
}

// observe begins to watch the Deployments of a namespace, from now on.
func (b *bench) observe(ctx context.Context, namespace string) (*observer, error) {
	deployments := b.cluster.Observer.Kube.AppsV1().Deployments(namespace)
	list, err := deployments.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, fmt.Errorf("list Deployments: %w", err)
	}
	w, err := deployments.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return nil, fmt.Errorf("watch Deployments: %w", err)
	}
	o := &observer{watch: w, seen: make(chan arrival, 1000)}
	go func() {
		defer close(o.seen)
		for event := range w.ResultChan() {
			if event.Type != watch.Added {
				continue
			}
			if deployment, ok := event.Object.(*appsv1.Deployment); ok {
				o.seen <- arrival{name: deployment.Name, at: time.Now()}
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
			return nil, fmt.Errorf("%d of %d Deployments are there: %w", len(at), n, context.Cause(ctx))
		case a, open := <-o.seen:
			if !open {
				return nil, errors.New("the watch of Deployments has ended early")
			}
			at[a.name] = a.at
		}
	}
	return at, nil
}
