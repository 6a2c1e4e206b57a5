package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// observer sees what becomes of the Jobs and Pods of a namespace. It is the same for all contestants: the times in the
// API know only seconds.
type observer struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{} // closed, and replaced, when there is something new
	err     error
	// When each was first seen, by name: the Job, the Pod, the Pod with its node, and the Pod whose container has run. They
	// do not change any more after await.
	jobs, pods, bound, ended map[string]time.Time
}

// observe begins to watch a namespace in which there are no Jobs yet.
func (b *bench) observe(ctx context.Context, namespace string) (*observer, error) {
	kube := b.cluster.Observer.Kube
	ctx, cancel := context.WithCancel(ctx)
	o := &observer{
		cancel: cancel, changed: make(chan struct{}),
		jobs: map[string]time.Time{}, pods: map[string]time.Time{}, bound: map[string]time.Time{}, ended: map[string]time.Time{},
	}
	jobs, err := kube.BatchV1().Jobs(namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watch Jobs: %w", err)
	}
	pods, err := kube.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watch Pods: %w", err)
	}
	for _, w := range []watch.Interface{jobs, pods} {
		o.done.Go(func() { o.follow(w) })
	}
	return o, nil
}

// stop ends the watches.
func (o *observer) stop() {
	o.cancel()
	o.done.Wait()
}

func (o *observer) follow(w watch.Interface) {
	for event := range w.ResultChan() {
		o.see(event, time.Now())
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = errors.New("a watch has ended early")
	}
	o.wake()
}

// wake tells await that there is something new. The lock is held.
func (o *observer) wake() {
	close(o.changed)
	o.changed = make(chan struct{})
}

func (o *observer) see(event watch.Event, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	first := func(seen map[string]time.Time, name string) {
		if seen[name].IsZero() {
			seen[name] = at
		}
	}
	switch object := event.Object.(type) {
	case *batchv1.Job:
		first(o.jobs, object.Name)
	case *corev1.Pod:
		first(o.pods, object.Name)
		if object.Spec.NodeName != "" {
			first(o.bound, object.Name)
		}
		switch object.Status.Phase {
		case corev1.PodSucceeded:
			first(o.ended, object.Name)
		case corev1.PodFailed:
			o.err = fmt.Errorf("the Pod %s has failed: %s %s", object.Name, object.Status.Reason, object.Status.Message)
		}
	default:
		return // an error, after which the watch ends
	}
	o.wake()
}

// await waits until the containers of n Pods have run. Then it sees nothing more.
func (o *observer) await(ctx context.Context, n int) error {
	defer o.stop()
	for {
		o.mu.Lock()
		have, err, changed := len(o.ended), o.err, o.changed
		o.mu.Unlock()
		switch {
		case have >= n:
			return nil
		case err != nil:
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d containers have run: %w", have, n, context.Cause(ctx))
		case <-changed:
		}
	}
}
