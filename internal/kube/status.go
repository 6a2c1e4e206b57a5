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
	// Holdback is how long a status change that is not urgent is delayed. Changes within that
	// time are written once.
	Holdback = time.Second

	// While a burst of children is created, such changes wait until no child was created for
	// busyPause, but at most longestHold.
	busyPause   = 100 * time.Millisecond
	longestHold = 5 * time.Second

	// forgetAfter is when an entry of an object that was not reconciled again is dropped: the
	// object was deleted.
	forgetAfter = time.Minute
)

// StatusWriter writes the status of objects of one kind. It skips a status that did not change,
// and writes changes that are not urgent at most once per Holdback and object. So a thousand new
// objects get their children before their statuses, and a long rollout does not write a status
// for each of its Pods.
//
// Its memory may be lost: the next reconcile sees the change again and delays it again.
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

// stored is a status that was written and not yet observed in the cache.
type stored struct {
	at      time.Time
	version string // resource version of the object after the write
}

// NewStatusWriter returns a StatusWriter of objects of that kind.
func NewStatusWriter(kind string, c client.StatusClient, clock clock.PassiveClock) *StatusWriter {
	return &StatusWriter{kind: kind, client: c, clock: clock, waiting: map[types.UID]time.Time{}, written: map[types.UID]stored{}}
}

// Outcome is the result of a reconcile.
type Outcome struct {
	// Urgent writes the status without a delay.
	Urgent bool
	// Hold is the delay of a change that is not urgent, if longer than Holdback.
	Hold time.Duration
	// Err is the error of the action, if it is retried with backoff or was caused by a stale
	// cache. An error that only a user can fix does not belong here.
	Err error
	// Acted means that a child was written, so an event will follow. A delayed status waits for
	// that event, because a reconcile before the cache has the child would write the child again.
	Acted bool
	// Again is the time until the next reconcile if there is no event; zero means never.
	Again time.Duration
}

// Finish ends a reconcile. It writes the status of after if it differs from before, the object as
// it was read, and the change is not delayed. It returns whether it wrote the status, and the
// result of Reconcile. It is not an error if the object no longer exists.
func (w *StatusWriter) Finish(ctx context.Context, before, after client.Object, o Outcome) (bool, reconcile.Result, error) {
	if IsStale(o.Err) || IsNamespaceEnding(o.Err) || errors.Is(o.Err, ErrFenced) {
		// The summary may be wrong, or cannot be written.
		result, err := ResultForTransient(o.Err)
		return false, result, err
	}
	written, wait, err := w.write(ctx, before, after, o)
	if o.Acted && wait > 0 {
		wait = max(wait, longestHold)
	}
	switch {
	case err != nil && o.Err == nil:
		result, err := ResultForTransient(err)
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

// Later returns the result of a reconcile that has written a child: the event of the child
// triggers the next reconcile, which writes the status.
func Later() reconcile.Result {
	return reconcile.Result{RequeueAfter: longestHold, Priority: ptr.To(LowPriority)}
}

// ResultForTransient returns the result of a reconcile that failed with an expected, transient
// error, which is not logged: see IsStale, IsNamespaceEnding and ErrFenced. It returns other
// errors unchanged.
func ResultForTransient(err error) (reconcile.Result, error) {
	switch {
	case IsNamespaceEnding(err):
		return reconcile.Result{}, nil
	case IsStale(err), errors.Is(err, ErrFenced):
		return reconcile.Result{RequeueAfter: StalePause}, nil
	default:
		return reconcile.Result{}, err
	}
}

// write returns whether it wrote the status, and if it delayed the change, for how long.
func (w *StatusWriter) write(ctx context.Context, before, after client.Object, o Outcome) (written bool, wait time.Duration, err error) {
	if equality.Semantic.DeepEqual(before, after) {
		w.forget(before.GetUID())
		return false, 0, nil
	}
	if w.isBehind(before) {
		// The API server would reject it. The cache will soon have the last write.
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

// wrote records the resource version of an object after a write.
func (w *StatusWriter) wrote(after client.Object) {
	now := w.clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sweep(now)
	w.written[after.GetUID()] = stored{at: now, version: after.GetResourceVersion()}
}

// isBehind reports whether an object from the cache is older than its last written status.
func (w *StatusWriter) isBehind(object client.Object) bool {
	now := w.clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	last, found := w.written[object.GetUID()]
	if !found {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), last.version)
	// After forgetAfter the cache is not late: etcd was restored from a backup.
	if err == nil && order < 0 && now.Sub(last.at) < forgetAfter {
		return true
	}
	delete(w.written, object.GetUID())
	return false
}

// Created records that a child was just created.
func (w *StatusWriter) Created() {
	now := w.clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = now
}

// hold returns the rest of the delay of an object's status; length is the whole delay.
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

// sweep drops the entries of objects that were not reconciled again, each time the number of
// entries has doubled. The caller holds w.mu.
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
