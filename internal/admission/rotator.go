package admission

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/keelson-dev/keelson/internal/pki"
)

// retryInterval is how long to wait while something is missing, and after the first failure.
const retryInterval = time.Second

// newRetry returns the pauses between attempts that fail.
func newRetry() wait.Backoff {
	return wait.Backoff{Duration: retryInterval, Factor: 2, Steps: math.MaxInt32, Cap: time.Minute}
}

// Options configure a Rotator.
type Options struct {
	// What names the server in the log. Empty means Webhook.
	What string
	// Names are the DNS names and IP addresses by which the API server calls this manager.
	Names []string
	// Store has the authority.
	Store Store
	// Trust configures the authorities that the API server trusts, as PEM. It is called repeatedly, and must be idempotent.
	Trust func(ctx context.Context, bundle []byte) error
	// Times are those of the certificates.
	Times Times
	Clock clock.Clock
	Log   logr.Logger
}

// Rotator keeps a serving certificate valid. One authority signs the certificates of all replicas; the leader creates it, renews it
// before it expires, and configures the API server to trust it.
type Rotator struct {
	options Options

	current atomic.Pointer[tls.Certificate]
	woken   chan struct{}
	// known is closed when the API server was told for the first time.
	known     chan struct{}
	knownOnce sync.Once

	// Of the replica: the certificate of the authority that has signed current.
	signer []byte

	// Of the leader: the authority that will be the next one, and since when API servers know it; zero if they do not.
	next      *authority
	nextSince time.Time
}

// NewRotator returns a Rotator. It does nothing before its runnables are started.
func NewRotator(o Options) *Rotator {
	o.What = cmp.Or(o.What, "Webhook")
	return &Rotator{options: o, woken: make(chan struct{}, 1), known: make(chan struct{})}
}

// GetCertificate is for a tls.Config.
func (r *Rotator) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if current := r.current.Load(); current != nil {
		return current, nil
	}
	return nil, errors.New("this replica has no certificate yet")
}

// Check returns an error as long as there is no certificate to serve with.
func (r *Rotator) Check() error {
	_, err := r.GetCertificate(nil)
	return err
}

// Known returns a channel that is closed when the API server trusts the authority. Only the leader configures that.
func (r *Rotator) Known() <-chan struct{} { return r.known }

// Follower returns what every replica has to run.
func (r *Rotator) Follower() manager.Runnable { return &loop{rotator: r, step: r.follow} }

// Renewer returns what the leader has to run.
func (r *Rotator) Renewer() manager.Runnable { return &loop{rotator: r, step: r.renew, leader: true} }

// loop takes a step again and again.
type loop struct {
	rotator *Rotator
	step    func(context.Context) (again time.Duration, err error)
	leader  bool
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (l *loop) NeedLeaderElection() bool { return l.leader }

// Start implements manager.Runnable.
func (l *loop) Start(ctx context.Context) error {
	o := l.rotator.options
	woken := l.rotator.woken
	if l.leader {
		woken = nil // the leader wakes the others
	}
	retry := newRetry()
	for ctx.Err() == nil {
		again, err := l.step(ctx)
		switch {
		case err == nil:
			retry = newRetry()
		case ctx.Err() == nil:
			again = retry.Step()
			o.Log.Error(err, o.What+" certificates are not as they should be, trying again", "pause", again)
		}
		select {
		case <-ctx.Done():
		case <-woken:
		case <-o.Clock.After(again):
		}
	}
	return nil
}

// follow sees to it that this replica has a certificate of the present authority.
func (r *Rotator) follow(ctx context.Context) (time.Duration, error) {
	a, _, err := r.options.Store.load(ctx)
	if errors.Is(err, errDamaged) {
		return retryInterval, nil // the leader reports and repairs it
	}
	if err != nil {
		return 0, err
	}
	if a == nil {
		return retryInterval, nil
	}
	now := r.options.Clock.Now()
	if current := r.current.Load(); current != nil && bytes.Equal(r.signer, a.Certificate.Raw) && !pki.NeedsRenewal(current.Leaf, now) {
		return r.options.Times.Look, nil
	}
	issued, err := a.issue(now, r.options.Times.Serving, r.options.Names)
	if err != nil {
		return 0, err
	}
	r.current.Store(issued)
	r.signer = a.Certificate.Raw
	r.options.Log.V(1).Info("Issued a certificate", "server", r.options.What, "until", issued.Leaf.NotAfter)
	return r.options.Times.Look, nil
}

// renew sees to it that there is an authority that is good for long enough, and that the API server trusts it.
func (r *Rotator) renew(ctx context.Context) (time.Duration, error) {
	a, version, err := r.options.Store.load(ctx)
	switch {
	case errors.Is(err, errDamaged):
		r.options.Log.Error(err, "Making another authority for certificates", "server", r.options.What)
	case err != nil:
		return 0, err
	}
	now := r.options.Clock.Now()
	switch {
	case a == nil:
		a, err = r.replace(ctx, nil, version)
	case pki.NeedsRenewal(a.Certificate, now) && r.next == nil:
		// A client that only trusts the old one must not get a certificate of the new one: first, all clients trust both.
		r.next, err = newAuthority(now, r.options.Times.Authority, a)
	case pki.NeedsRenewal(a.Certificate, now) && !r.nextSince.IsZero() && now.Sub(r.nextSince) >= r.options.Times.Overlap:
		a, err = r.replace(ctx, r.next, version)
	case !pki.NeedsRenewal(a.Certificate, now):
		r.next, r.nextSince = nil, time.Time{} // another leader was faster
	}
	if err != nil {
		return 0, err
	}
	bundle := a.bundle()
	if r.next != nil {
		bundle = r.next.bundle()
	}
	if err := r.options.Trust(ctx, bundle); err != nil {
		r.nextSince = time.Time{}
		return 0, err
	}
	if r.next != nil && r.nextSince.IsZero() {
		r.nextSince = now
	}
	r.knownOnce.Do(func() { close(r.known) })
	return r.options.Times.Look, nil
}

// replace keeps an authority, or a new one in place of nil, and wakes the follower of this replica.
func (r *Rotator) replace(ctx context.Context, a *authority, version string) (*authority, error) {
	if a == nil {
		var err error
		if a, err = newAuthority(r.options.Clock.Now(), r.options.Times.Authority, nil); err != nil {
			return nil, err
		}
	}
	if err := r.options.Store.save(ctx, a, version); err != nil {
		return nil, err
	}
	r.next, r.nextSince = nil, time.Time{}
	r.options.Log.Info("Made an authority for certificates", "server", r.options.What, "until", a.Certificate.NotAfter)
	select {
	case r.woken <- struct{}{}:
	default:
	}
	return a, nil
}
