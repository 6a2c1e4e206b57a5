package manager

import (
	"context"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/keelson-dev/keelson/internal/kube"
)

// fence stops the writes of a replica that may have lost the lease and does not know it
// yet: it was suspended, or the machine was so busy that the lease ran out. What it had in
// hand at that moment it would finish, although the next leader has done it, too, and may
// have tidied up after it.
type fence struct {
	identity string
	lasts    time.Duration
	// patience is for a request about the Lease while the fence is closed.
	patience time.Duration

	mu       sync.Mutex
	renewed  time.Time // when the last renewal that succeeded was sent; zero: the lease is not ours
	holder   string    // of the lease at the last look
	previous string    // the last holder that was another replica
}

// newFence returns a fence for a replica of that election. It closes as soon as the elector
// should have given up, which leaves the rest of the lease for a write that is on its way.
func newFence(election LeaderElection) *fence {
	// Others go by the Lease, which counts whole seconds.
	lease := election.LeaseDuration.Truncate(time.Second)
	lasts := min(election.RenewDeadline, lease)
	return &fence{identity: election.Identity, lasts: lasts, patience: max((lease-lasts)/3, shortestPatience)}
}

// shortestPatience is for leases that leave hardly any time after the deadline.
const shortestPatience = 100 * time.Millisecond

// isOpen reports whether nobody else can have the lease.
func (f *fence) isOpen(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.renewed.IsZero() {
		return false
	}
	return kube.Elapsed(f.renewed, now) < f.lasts
}

// note notes a write of the Lease that was sent at a time.
func (f *fence) note(sent time.Time, record resourcelock.LeaderElectionRecord, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case record.HolderIdentity != f.identity:
		f.renewed = time.Time{} // it is given up, whether or not the answer says so
	case err == nil:
		f.renewed = sent
	}
}

// see notes what a look at the Lease has found.
func (f *fence) see(record *resourcelock.LeaderElectionRecord) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holder = record.HolderIdentity
	if f.holder == f.identity {
		return
	}
	if f.holder != "" {
		f.previous = f.holder
	}
	f.renewed = time.Time{} // another one has it; the elector goes on trying until its deadline
}

// bound returns the context for a request about the Lease that is sent at a time. An elector that could not renew it looks
// at it and gives it up, and only then says that it leads no more: all the while the controllers work. If the API
// server does not answer, both have to be over before another one leads.
func (f *fence) bound(ctx context.Context, now time.Time) (context.Context, context.CancelFunc) {
	f.mu.Lock()
	isOurs := !f.renewed.IsZero()
	f.mu.Unlock()
	if !isOurs || f.isOpen(now) {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, f.patience)
}

// isHolder reports whether this replica held the lease at the last look.
func (f *fence) isHolder() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.holder == f.identity
}

// before returns the replica that held the lease before this one; "" if there was none.
func (f *fence) before() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.previous
}

// lock returns inner, with what is written to it, and what is found in it, noted.
func (f *fence) lock(inner resourcelock.Interface) resourcelock.Interface {
	return fencedLock{inner, f}
}

// guard makes the clients of a copy of cfg refuse to write while the fence is closed.
func (f *fence) guard(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return fencedTransport{next, f} })
	return cfg
}

type fencedLock struct {
	resourcelock.Interface
	fence *fence
}

// Get implements resourcelock.Interface.
func (l fencedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	ctx, cancel := l.fence.bound(ctx, time.Now())
	defer cancel()
	record, raw, err := l.Interface.Get(ctx)
	if err == nil {
		l.fence.see(record)
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l fencedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	sent := time.Now()
	err := l.Interface.Create(ctx, record)
	l.fence.note(sent, record, err)
	return err
}

// Update implements resourcelock.Interface. The elector of client-go v0.37 releases the lease without checking who holds it: a
// leader that wakes up after another replica took over would take it away from that one. That update is not sent.
func (l fencedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" && !l.fence.isHolder() {
		return nil
	}
	sent := time.Now()
	ctx, cancel := l.fence.bound(ctx, sent)
	defer cancel()
	err := l.Interface.Update(ctx, record)
	l.fence.note(sent, record, err)
	return err
}

type fencedTransport struct {
	next  http.RoundTripper
	fence *fence
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

// WrappedRoundTripper lets client-go find what it looks for in the transport.
func (t fencedTransport) WrappedRoundTripper() http.RoundTripper { return t.next }
