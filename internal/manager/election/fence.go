package election

import (
	"context"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/keelson-dev/keelson/internal/kube"
)

// Fence rejects the writes of a replica that may have lost the Lease without noticing, because it was suspended or the
// machine was overloaded. Otherwise its running reconciles would finish, although the next leader may have done the same
// work already.
type Fence struct {
	identity string
	// validity is the time that the fence stays open after a renewal.
	validity time.Duration
	// responseTimeout limits requests for the Lease while the fence is closed.
	responseTimeout time.Duration

	mu       sync.Mutex
	renewed  time.Time // when the last successful renewal was sent; zero: this replica does not hold the Lease
	holder   string    // as of the last read
	previous string    // the last holder that was another replica
}

// newFence returns a closed fence. A renewal opens it until the deadline of the elector, so that requests in flight can
// finish before the Lease expires.
func newFence(election Options) *Fence {
	// The other replicas read the duration from the Lease, which has whole seconds.
	lease := election.LeaseDuration.Truncate(time.Second)
	validity := min(election.RenewDeadline, lease)
	return &Fence{identity: election.Identity, validity: validity, responseTimeout: max((lease-validity)/3, minResponseTimeout)}
}

// minResponseTimeout applies if the Lease expires very soon after the deadline.
const minResponseTimeout = 100 * time.Millisecond

// isOpen reports whether no other replica can hold the Lease.
func (f *Fence) isOpen(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.renewed.IsZero() {
		return false
	}
	return kube.Elapsed(f.renewed, now) < f.validity
}

// recordWrite records a write of the Lease, the time at which it was sent, and its result.
func (f *Fence) recordWrite(sent time.Time, record resourcelock.LeaderElectionRecord, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case record.HolderIdentity != f.identity:
		f.renewed = time.Time{} // released, even if the response was lost
	case err == nil:
		f.renewed = sent
	}
}

// recordRead records the content of the Lease.
func (f *Fence) recordRead(record *resourcelock.LeaderElectionRecord) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holder = record.HolderIdentity
	if f.holder == f.identity {
		return
	}
	if f.holder != "" {
		f.previous = f.holder
	}
	f.renewed = time.Time{} // another replica holds it; the elector keeps trying until its deadline
}

// limit returns the context of a request for the Lease that is sent at now. After a failed renewal, the elector reads the
// Lease and releases it before it reports the loss, and the controllers run until then. If the API server does not
// respond, both requests must time out before another replica can take over.
func (f *Fence) limit(ctx context.Context, now time.Time) (context.Context, context.CancelFunc) {
	f.mu.Lock()
	isOurs := !f.renewed.IsZero()
	f.mu.Unlock()
	if !isOurs || f.isOpen(now) {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, f.responseTimeout)
}

// isHolder reports whether this replica held the Lease at the last read.
func (f *Fence) isHolder() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.holder == f.identity
}

// Previous returns the identity of the last other replica that held the Lease; "" if there was none.
func (f *Fence) Previous() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.previous
}

// wrapLock returns inner, and records reads and writes of it.
func (f *Fence) wrapLock(inner resourcelock.Interface) resourcelock.Interface {
	return fencedLock{inner, f}
}

// wrapConfig returns a copy of cfg whose clients fail writes with kube.ErrFenced while the fence is closed.
func (f *Fence) wrapConfig(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return fencedTransport{next, f} })
	return cfg
}

type fencedLock struct {
	resourcelock.Interface
	fence *Fence
}

// Get implements resourcelock.Interface.
func (l fencedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	ctx, cancel := l.fence.limit(ctx, time.Now())
	defer cancel()
	record, raw, err := l.Interface.Get(ctx)
	if err == nil {
		l.fence.recordRead(record)
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l fencedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	sent := time.Now()
	err := l.Interface.Create(ctx, record)
	l.fence.recordWrite(sent, record, err)
	return err
}

// Update implements resourcelock.Interface. The elector of client-go v0.37 releases the Lease without checking its holder, so
// that a former leader that resumes would release the Lease of the new one. Update does not send that release.
func (l fencedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" && !l.fence.isHolder() {
		return nil
	}
	sent := time.Now()
	ctx, cancel := l.fence.limit(ctx, sent)
	defer cancel()
	err := l.Interface.Update(ctx, record)
	l.fence.recordWrite(sent, record, err)
	return err
}

type fencedTransport struct {
	next  http.RoundTripper
	fence *Fence
}

// RoundTrip implements http.RoundTripper.
func (t fencedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodGet || t.fence.isOpen(time.Now()) {
		return t.next.RoundTrip(request)
	}
	if request.Body != nil {
		_ = request.Body.Close() // it was not read
	}
	return nil, kube.ErrFenced
}

// WrappedRoundTripper lets client-go unwrap the transport.
func (t fencedTransport) WrappedRoundTripper() http.RoundTripper { return t.next }
