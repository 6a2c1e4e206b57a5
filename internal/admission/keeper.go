package admission

import (
	"bytes"
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

// Options say what a Keeper keeps.
type Options struct {
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

// Keeper keeps a serving certificate valid. One authority signs the certificates of all replicas; the leader creates it, renews it
// before it expires, and configures the API server to trust it.
type Keeper struct {
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

// NewKeeper returns a Keeper. It does nothing before its runnables are started.
func NewKeeper(o Options) *Keeper {
	return &Keeper{options: o, woken: make(chan struct{}, 1), known: make(chan struct{})}
}

// GetCertificate is for a tls.Config.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if current := k.current.Load(); current != nil {
		return current, nil
	}
	return nil, errors.New("this replica has no certificate yet")
}

// Check returns an error as long as there is no certificate to serve with.
func (k *Keeper) Check() error {
	_, err := k.GetCertificate(nil)
	return err
}

// Known returns a channel that is closed when the API server trusts the authority. Only the leader configures that.
func (k *Keeper) Known() <-chan struct{} { return k.known }

// Follower returns what every replica has to run.
func (k *Keeper) Follower() manager.Runnable { return &loop{keeper: k, step: k.follow} }

// Renewer returns what the leader has to run.
func (k *Keeper) Renewer() manager.Runnable { return &loop{keeper: k, step: k.renew, leader: true} }

// loop takes a step again and again.
type loop struct {
	keeper *Keeper
	step   func(context.Context) (again time.Duration, err error)
	leader bool
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (l *loop) NeedLeaderElection() bool { return l.leader }

// Start implements manager.Runnable.
func (l *loop) Start(ctx context.Context) error {
	o := l.keeper.options
	woken := l.keeper.woken
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
			o.Log.Error(err, "Webhook certificates are not as they should be, trying again", "pause", again)
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
func (k *Keeper) follow(ctx context.Context) (time.Duration, error) {
	a, _, err := k.options.Store.load(ctx)
	if errors.Is(err, errDamaged) {
		return retryInterval, nil // the leader reports and repairs it
	}
	if err != nil {
		return 0, err
	}
	if a == nil {
		return retryInterval, nil
	}
	now := k.options.Clock.Now()
	if current := k.current.Load(); current != nil && bytes.Equal(k.signer, a.Certificate.Raw) && !pki.NeedsRenewal(current.Leaf, now) {
		return k.options.Times.Look, nil
	}
	issued, err := a.issue(now, k.options.Times.Serving, k.options.Names)
	if err != nil {
		return 0, err
	}
	k.current.Store(issued)
	k.signer = a.Certificate.Raw
	k.options.Log.V(1).Info("Issued a webhook certificate", "until", issued.Leaf.NotAfter)
	return k.options.Times.Look, nil
}

// renew sees to it that there is an authority that is good for long enough, and that the API server trusts it.
func (k *Keeper) renew(ctx context.Context) (time.Duration, error) {
	a, version, err := k.options.Store.load(ctx)
	switch {
	case errors.Is(err, errDamaged):
		k.options.Log.Error(err, "Making another authority for webhook certificates")
	case err != nil:
		return 0, err
	}
	now := k.options.Clock.Now()
	switch {
	case a == nil:
		a, err = k.replace(ctx, nil, version)
	case pki.NeedsRenewal(a.Certificate, now) && k.next == nil:
		// A client that only trusts the old one must not get a certificate of the new one: first, all clients trust both.
		k.next, err = newAuthority(now, k.options.Times.Authority, a)
	case pki.NeedsRenewal(a.Certificate, now) && !k.nextSince.IsZero() && now.Sub(k.nextSince) >= k.options.Times.Overlap:
		a, err = k.replace(ctx, k.next, version)
	case !pki.NeedsRenewal(a.Certificate, now):
		k.next, k.nextSince = nil, time.Time{} // another leader was faster
	}
	if err != nil {
		return 0, err
	}
	bundle := a.bundle()
	if k.next != nil {
		bundle = k.next.bundle()
	}
	if err := k.options.Trust(ctx, bundle); err != nil {
		k.nextSince = time.Time{}
		return 0, err
	}
	if k.next != nil && k.nextSince.IsZero() {
		k.nextSince = now
	}
	k.knownOnce.Do(func() { close(k.known) })
	return k.options.Times.Look, nil
}

// replace keeps an authority, or a new one in place of nil, and wakes the follower of this replica.
func (k *Keeper) replace(ctx context.Context, a *authority, version string) (*authority, error) {
	if a == nil {
		var err error
		if a, err = newAuthority(k.options.Clock.Now(), k.options.Times.Authority, nil); err != nil {
			return nil, err
		}
	}
	if err := k.options.Store.save(ctx, a, version); err != nil {
		return nil, err
	}
	k.next, k.nextSince = nil, time.Time{}
	k.options.Log.Info("Made an authority for webhook certificates", "until", a.Certificate.NotAfter)
	select {
	case k.woken <- struct{}{}:
	default:
	}
	return a, nil
}
