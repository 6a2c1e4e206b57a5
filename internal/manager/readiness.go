package manager

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// readiness counts the controllers whose caches have not synced. trackedController updates it and /readyz reads
// it, without a request to the API.
type readiness struct {
	mu       sync.Mutex
	syncing  int
	stopping bool
	// webhook, if set, returns an error while the webhook cannot answer.
	webhook func() error

	once   sync.Once
	synced chan struct{} // closed when syncing reaches 0
}

func newReadiness() *readiness {
	return &readiness{synced: make(chan struct{})}
}

func (r *readiness) expect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.syncing++
}

func (r *readiness) done() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.syncing--
	if r.syncing == 0 {
		r.once.Do(func() { close(r.synced) })
	}
}

func (r *readiness) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping = true
}

// check is a healthz.Checker. A standby is ready, too: it could take over at once.
func (r *readiness) check(*http.Request) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.stopping:
		return errors.New("the manager is stopping")
	case r.syncing > 0:
		return errors.New("the caches have not synced yet")
	case r.webhook != nil:
		return r.webhook()
	default:
		return nil
	}
}

// trackingManager updates readiness when the caches of its controllers have synced. controller-runtime only knows that they were
// started.
type trackingManager struct {
	ctrl.Manager
	readiness *readiness
	log       logr.Logger
}

// GetLogger implements ctrl.Manager. Controllers derive their loggers from it; the inner manager logs its own
// messages elsewhere.
func (m *trackingManager) GetLogger() logr.Logger { return m.log }

// Add implements ctrl.Manager.
func (m *trackingManager) Add(runnable manager.Runnable) error {
	if c, ok := runnable.(warmable); ok {
		m.readiness.expect()
		runnable = &trackedController{warmable: c, readiness: m.readiness}
	}
	return m.Manager.Add(runnable)
}

// warmable is a controller: its Warmup returns when its caches have synced.
type warmable interface {
	manager.Runnable
	manager.LeaderElectionRunnable
	Warmup(context.Context) error
}

type trackedController struct {
	warmable
	readiness *readiness
}

// Warmup fills the caches of the controller and reports that it has.
func (c *trackedController) Warmup(ctx context.Context) error {
	if err := c.warmable.Warmup(ctx); err != nil {
		return err
	}
	if ctx.Err() == nil {
		c.readiness.done()
	}
	return nil
}
