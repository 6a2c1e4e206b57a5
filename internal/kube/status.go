package kube

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// Holdback is how long a change of status waits that nobody waits for. What
	// changes again within that time is written once.
	Holdback = time.Second

	// While children are created one after the other, such changes wait until none
	// was created for the time of a pause, but not longer than this.
	busyPause   = 100 * time.Millisecond
	longestHold = 5 * time.Second

	// forgetAfter is when a note about an object is dropped that did not come back: it was
	// deleted meanwhile.
	forgetAfter = time.Minute
)

// StatusWriter writes the status of objects of one kind: only what changed, and what
// is not urgent at most once in Holdback for each object. So a thousand new objects
// get their children before their statuses, and a long rollout does not write a
// status for each of its pods.
//
// What it remembers may be lost: the change is then seen again and waits again.
type StatusWriter struct {
	kind   string
	client client.StatusClient
	clock  clock.PassiveClock

	mu      sync.Mutex
	waiting map[types.UID]time.Time
	written map[types.UID]stored
	sweepAt int
	busy    time.Time
}

// stored is a status that was written and that the cache has not been seen to have.
type stored struct {
	at      time.Time
	version string // of the object, since then
}

// NewStatusWriter returns a StatusWriter of objects of that kind.
func NewStatusWriter(kind string, c client.StatusClient, clock clock.PassiveClock) *StatusWriter {
	return &StatusWriter{kind: kind, client: c, clock: clock, waiting: map[types.UID]time.Time{}, written: map[types.UID]stored{}}
}

// Outcome is how a reconcile went.
type Outcome struct {
	// Urgent says that somebody waits for the change of status.
	Urgent bool
	// Hold is how long a change waits that is not urgent, if that is longer than Holdback.
	Hold time.Duration
	// Err is why acting failed, if it is to be tried again with backoff or because
	// it was stale. What only a person can put right does not belong here.
	Err error
	// Acted says that a child was written, of which an event will tell. What is held
	// back waits for that: to look before the cache has the child would be to write it
	// again.
	Acted bool
	// Again is when to look again if nothing happens; zero means never.
	Again time.Duration
}

// Finish ends a reconcile. It stores the status of after, which otherwise is before
// as it was read, if the two differ and the change need not wait. It returns whether
// it stored it, and what Reconcile returns. An object that is gone is no error.
func (w *StatusWriter) Finish(ctx context.Context, before, after client.Object, o Outcome) (bool, reconcile.Result, error) {
	if IsStale(o.Err) || IsNamespaceEnding(o.Err) || errors.Is(o.Err, ErrFenced) {
		// Nothing of what was summarized is known to be true, or can be written.
		result, err := Quietly(o.Err)
		return false, result, err
	}
	written, wait, err := w.write(ctx, before, after, o)
	if o.Acted && wait > 0 {
		wait = max(wait, longestHold)
	}
	switch {
	case err != nil && o.Err == nil:
		result, err := Quietly(err)
		return written, result, err
	case o.Err != nil:
		if IsStale(err) {
			err = nil
		}
		return written, reconcile.Result{}, errors.Join(o.Err, err)
	}
	if wait == 0 || o.Again > 0 && o.Again < wait {
		wait = o.Again
	}
	return written, reconcile.Result{RequeueAfter: wait, Priority: ptr.To(LowPriority)}, nil
}

// Later returns what Reconcile returns after it has written a child and has nothing else
// to say: an event will tell of the child, and the status follows then.
func Later() reconcile.Result {
	return reconcile.Result{RequeueAfter: longestHold, Priority: ptr.To(LowPriority)}
}

// Quietly returns the result of a reconcile that ended with an error of which nobody
// needs to hear, see IsStale, IsNamespaceEnding and ErrFenced. Other errors are returned.
func Quietly(err error) (reconcile.Result, error) {
	switch {
	case IsNamespaceEnding(err):
		return reconcile.Result{}, nil
	case IsStale(err), errors.Is(err, ErrFenced):
		return reconcile.Result{RequeueAfter: StalePause}, nil
	default:
		return reconcile.Result{}, err
	}
}

// write returns whether it wrote, and if it held the change back, for how long.
func (w *StatusWriter) write(ctx context.Context, before, after client.Object, o Outcome) (written bool, wait time.Duration, err error) {
	if equality.Semantic.DeepEqual(before, after) {
		w.forget(before.GetUID())
		return false, 0, nil
	}
	if w.isBehind(before) {
		// The API server would refuse it. The cache is about to tell what was written last.
		return false, StalePause, nil
	}
	if !o.Urgent {
		if wait := w.hold(before.GetUID(), max(Holdback, o.Hold)); wait > 0 {
			return false, wait, nil
		}
	}
	w.forget(before.GetUID())
	err = w.client.Status().Update(ctx, after, client.FieldOwner(FieldManager))
	if apierrors.IsNotFound(err) {
		return false, 0, nil
	}
	if err == nil {
		w.wrote(after)
	}
	return err == nil, 0, Named(err, "write the status of", w.kind, before.GetNamespace(), before.GetName())
}

// wrote remembers the version that an object has got.
func (w *StatusWriter) wrote(after client.Object) {
	now := w.clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sweep(now)
	w.written[after.GetUID()] = stored{at: now, version: after.GetResourceVersion()}
}

// isBehind reports whether an object is older than the status that was last written.
func (w *StatusWriter) isBehind(object client.Object) bool {
	now := w.clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	last, found := w.written[object.GetUID()]
	if !found {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), last.version)
	// After a while it is no cache that is late: etcd was restored from a backup.
	if err == nil && order < 0 && now.Sub(last.at) < forgetAfter {
		return true
	}
	delete(w.written, object.GetUID())
	return false
}

// Created tells the writer that a child was created just now.
func (w *StatusWriter) Created() {
	now := w.clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = now
}

// hold returns how long the object has still to wait, of so long in all.
func (w *StatusWriter) hold(uid types.UID, length time.Duration) time.Duration {
	now := w.clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	since, found := w.waiting[uid]
	if !found {
		w.sweep(now)
		since = now
		w.waiting[uid] = since
	}
	if wait := since.Add(length).Sub(now); wait > 0 {
		return wait
	}
	return min(w.busy.Add(busyPause).Sub(now), since.Add(longestHold).Sub(now))
}

// sweep drops the notes about objects that did not come back, each time that the
// notes have doubled; w.mu is held.
func (w *StatusWriter) sweep(now time.Time) {
	if len(w.waiting)+len(w.written) < w.sweepAt {
		return
	}
	maps.DeleteFunc(w.waiting, func(_ types.UID, since time.Time) bool { return now.Sub(since) > forgetAfter })
	maps.DeleteFunc(w.written, func(_ types.UID, last stored) bool { return now.Sub(last.at) > forgetAfter })
	w.sweepAt = max(2*(len(w.waiting)+len(w.written)), 64)
}

func (w *StatusWriter) forget(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiting, uid)
}
