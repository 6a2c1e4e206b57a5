package kube

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Holdback is how long a change of status waits that nobody waits for. What changes
// again within that time is written once.
const Holdback = time.Second

// forgetAfter is when a note about a waiting change is dropped whose object did not
// come back: it was deleted meanwhile.
const forgetAfter = time.Minute

// StatusWriter writes the status of objects of one kind: only what changed, and what
// is not urgent at most once in Holdback for each object. So a thousand new objects
// get their children before their statuses, and a long rollout does not write a
// status for each of its pods.
//
// What it remembers may be lost: the change is then seen again and waits again.
type StatusWriter struct {
	client client.StatusClient
	clock  clock.PassiveClock

	mu      sync.Mutex
	waiting map[types.UID]time.Time
	sweepAt int
}

// NewStatusWriter returns a StatusWriter that writes through c.
func NewStatusWriter(c client.StatusClient, clock clock.PassiveClock) *StatusWriter {
	return &StatusWriter{client: c, clock: clock, waiting: map[types.UID]time.Time{}}
}

// Write stores the status of after, which otherwise is before as it was read, if the
// two differ. It returns whether it did, and how long to wait before calling it again
// if it held the change back. The write is refused, see IsStale, if the object has
// changed since it was read; an object that is gone is no error.
func (w *StatusWriter) Write(ctx context.Context, before, after client.Object, urgent bool) (written bool, wait time.Duration, err error) {
	if equality.Semantic.DeepEqual(before, after) {
		w.forget(before.GetUID())
		return false, 0, nil
	}
	if !urgent {
		if wait := w.hold(before.GetUID()); wait > 0 {
			return false, wait, nil
		}
	}
	if err := w.client.Status().Update(ctx, after, client.FieldOwner(FieldManager)); err != nil {
		return false, 0, client.IgnoreNotFound(err)
	}
	w.forget(before.GetUID())
	return true, 0, nil
}

// hold returns how long the object has still to wait.
func (w *StatusWriter) hold(uid types.UID) time.Duration {
	now := w.clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	since, found := w.waiting[uid]
	if !found {
		w.sweep(now)
		since = now
		w.waiting[uid] = since
	}
	return since.Add(Holdback).Sub(now)
}

// sweep drops the notes about objects that did not come back, each time that the
// notes have doubled.
func (w *StatusWriter) sweep(now time.Time) {
	if len(w.waiting) < w.sweepAt {
		return
	}
	for uid, since := range w.waiting {
		if now.Sub(since) > forgetAfter {
			delete(w.waiting, uid)
		}
	}
	w.sweepAt = max(2*len(w.waiting), 64)
}

func (w *StatusWriter) forget(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiting, uid)
}
