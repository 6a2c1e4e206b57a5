//go:build soak

package crontab

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/testing/managers"
)

// manager is a process that runs the controller.
type manager struct {
	*managers.Manager
	world *world
	// live is the time from its start, or from when it became the leader, to its end.
	live Span
	// works means that it has been ready.
	works bool
}

// startManager starts a manager without waiting until it is ready.
func (w *world) startManager(t *testing.T) *manager {
	t.Helper()
	name := fmt.Sprintf("manager-%d", len(w.managers))
	args := []string{"--kubeconfig=" + w.kubeconfig, "--controllers=crontab", "--metrics-bind-address=0"}
	if w.elect {
		args = append(args, "--leader-elect", "--lease-lock-name="+lease, "--lease-lock-namespace="+w.namespace,
			"--holder-identity="+name, "--lease-duration=2s", "--renew-deadline=1500ms", "--retry-period=300ms")
	}
	m := &manager{world: w, live: Span{From: time.Now()}}
	m.Manager = managers.Start(t, name, args...)
	w.managers = append(w.managers, m)
	return m
}

// awaitReady waits until the manager is ready. Runs may be missed until shortly after that. Further
// calls excuse nothing.
func (m *manager) awaitReady(t *testing.T) {
	t.Helper()
	m.AwaitReady(t)
	if !m.works {
		m.works = true
		m.world.out(m.live.From, time.Now().Add(settle))
	}
}

// kill ends the manager like a power failure.
func (m *manager) kill(t *testing.T) {
	t.Helper()
	m.End(t)
	m.live.To = time.Now()
	// This ends when the next one is ready, see awaitReady.
	m.world.out(m.live.To.Add(-100*time.Millisecond), time.Now().Add(settle))
}

// explain logs the state of a manager after a failed test: SIGQUIT makes Go print the stack of each
// goroutine.
func (m *manager) explain(t *testing.T) {
	if !t.Failed() {
		return
	}
	t.Logf("log of %s:\n%s", m.Name, m.Tail())
	select {
	case <-m.Done:
	default:
		m.Signal(t, syscall.SIGQUIT)
		<-m.Done
	}
	all := m.Log()
	t.Logf("stacks:\n%s", all[max(0, len(all)-200_000):])
}

// replaceEnded replaces a manager that has ended: it exits if it cannot renew its lease in time on
// a busy host.
func (w *world) replaceEnded(t *testing.T, both []*manager, i int) {
	t.Helper()
	select {
	case <-both[i].Done:
		both[i].kill(t)
		both[i] = w.startManager(t)
	default:
	}
}

// awaitLeader waits until one of two managers holds the lease, and returns its index.
func (w *world) awaitLeader(t *testing.T, both []*manager) (leader int) {
	t.Helper()
	began := time.Now()
	eventually(t, "a leader", func() bool {
		w.replaceEnded(t, both, 0)
		w.replaceEnded(t, both, 1)
		for i, m := range both {
			if w.holds(t, m) {
				leader = i
				return true
			}
		}
		return false
	})
	w.out(began, time.Now().Add(settle))
	return leader
}

// awaitLease waits until a manager holds the lease.
func (w *world) awaitLease(t *testing.T, both []*manager, i int) {
	t.Helper()
	eventually(t, "the other takes the lease", func() bool {
		w.replaceEnded(t, both, i)
		return w.holds(t, both[i])
	})
}

// holds reports whether a manager holds the lease, and records since when.
func (w *world) holds(t *testing.T, m *manager) bool {
	t.Helper()
	current, err := w.kube.CoordinationV1().Leases(w.namespace).Get(t.Context(), lease, metav1.GetOptions{})
	if err != nil || ptr.Deref(current.Spec.HolderIdentity, "") != m.Name {
		return false
	}
	m.live.From = current.Spec.AcquireTime.Time
	return true
}
