package manager

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
)

// electorPeriod is how soon the elector comes back after an attempt; pacedLock decides how long an attempt takes.
const electorPeriod = 100 * time.Millisecond

// pacedLock lets a standby take over at once. The elector of client-go sleeps between two looks at the Lease, up to twice
// the retry period, whether or not it was released meanwhile; and it counts the time of a silent leader from a look, and not
// from the renewal. So the elector is told to come back all the time, and this lock makes it wait: a standby until the Lease
// changes or runs out, which a watch tells, and the leader until its next renewal is due. There are no more renewals
// than without it.
//
// It is for the one goroutine of the elector.
type pacedLock struct {
	resourcelock.Interface
	leases coordinationv1client.LeaseInterface
	name   string
	retry  time.Duration

	// leads says that the last write was ours and succeeded.
	leads bool
	// tried is when a renewal was last sent; looked says that the Lease was read since.
	tried  time.Time
	looked bool
	// failed says that the last look failed.
	failed bool
	// record is what a look found last, noticed when that was new, and duration how long it is good from then on.
	record   *resourcelock.LeaderElectionRecord
	raw      []byte
	noticed  time.Time
	duration time.Duration

	// holder is who had the Lease before this replica.
	holder atomic.Pointer[string]
}

// newPacedLock returns a lock that is inner, which is about the Lease of that name.
func newPacedLock(inner resourcelock.Interface, leases coordinationv1client.LeaseInterface, name string, retry time.Duration) *pacedLock {
	return &pacedLock{Interface: inner, leases: leases, name: name, retry: retry}
}

// previous returns who had the Lease before this replica; "" if nobody had it.
func (l *pacedLock) previous() string {
	if l == nil {
		return ""
	}
	return ptr.Deref(l.holder.Load(), "")
}

// Get implements resourcelock.Interface.
func (l *pacedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if !l.leads && !l.await(ctx) {
		// To ask now would fail, and the elector would call it an error of the lock.
		return l.record, l.raw, nil
	}
	record, raw, err := l.Interface.Get(ctx)
	l.failed = err != nil
	if err != nil {
		return record, raw, err
	}
	l.looked, l.raw = true, raw
	if !isSame(l.record, record) {
		l.record, l.noticed = record, time.Now()
		l.duration = time.Duration(record.LeaseDurationSeconds) * time.Second
	}
	if record.HolderIdentity != l.Identity() {
		l.leads = false
		if record.HolderIdentity != "" {
			l.holder.Store(&record.HolderIdentity)
		}
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l *pacedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Create(ctx, record)
	l.leads, l.tried = err == nil, time.Now()
	return err
}

// Update implements resourcelock.Interface. The elector of client-go v0.37 gives up the Lease without looking whose it is
// by now: a leader that wakes up after the next one took over would take it away from that one. It is not done.
func (l *pacedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	isOurs := record.HolderIdentity == l.Identity()
	if !isOurs && l.record != nil && l.looked && l.record.HolderIdentity != l.Identity() {
		return nil // there is nothing to give up
	}
	if isOurs && l.leads && !l.looked {
		if !pause(ctx, time.Until(l.tried.Add(l.retry))) {
			if errors.Is(ctx.Err(), context.Canceled) {
				// The elector stops, and gives up the Lease next. It would call this an error of the lock.
				return nil
			}
			return ctx.Err()
		}
		record.RenewTime = metav1.Now()
	}
	l.tried, l.looked = time.Now(), false
	err := l.Interface.Update(ctx, record)
	if err == nil {
		l.leads = isOurs
	}
	return err
}

// await waits until the Lease is another than the last look found, or that has run out; never longer than the retry
// period. It returns false if the elector stops meanwhile, and somebody else had the Lease at the last look.
func (l *pacedLock) await(ctx context.Context) bool {
	l.awaitChange(ctx)
	return l.failed || l.record == nil || l.record.HolderIdentity == "" || !errors.Is(ctx.Err(), context.Canceled)
}

func (l *pacedLock) awaitChange(ctx context.Context) {
	wait := l.retry
	if !l.failed {
		if l.record == nil || l.record.HolderIdentity == "" {
			return
		}
		wait = min(wait, time.Until(l.noticed.Add(l.duration)))
	}
	if wait <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	watch, err := l.leases.Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, l.name).String()})
	if err != nil {
		<-ctx.Done() // then as often as without
		return
	}
	defer watch.Stop()
	for event := range watch.ResultChan() {
		lease, ok := event.Object.(*coordinationv1.Lease)
		if ok && !isSame(l.record, resourcelock.LeaseSpecToLeaderElectionRecord(&lease.Spec)) {
			return
		}
	}
	<-ctx.Done() // also when the server has ended the watch
}

// isSame reports whether two records are of the same renewal.
func isSame(a, b *resourcelock.LeaderElectionRecord) bool {
	return a != nil && b != nil && a.HolderIdentity == b.HolderIdentity && a.LeaderTransitions == b.LeaderTransitions &&
		a.RenewTime.Equal(&b.RenewTime)
}

// pause lets some time pass, and reports whether it did.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
