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
	// live is from its start, or from when it became the leader, until its end.
	live Span
	// works says that it was ready once.
	works bool
}

// startManager starts one, and does not wait until it is ready.
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

// awaitReady waits until the manager is at work. Runs may be missed until then, and a moment more, and none after that: who
// waits for the same manager again excuses nothing.
func (m *manager) awaitReady(t *testing.T) {
	t.Helper()
	m.AwaitReady(t)
	if !m.works {
		m.works = true
		m.world.out(m.live.From, time.Now().Add(settle))
	}
}

// kill ends the manager as if the machine were switched off.
func (m *manager) kill(t *testing.T) {
	t.Helper()
	m.End(t)
	m.live.To = time.Now()
	// Until the next one has started; then its start counts.
	m.world.out(m.live.To.Add(-100*time.Millisecond), time.Now().Add(settle))
}

// explain prints what a manager was doing when a test failed: SIGQUIT makes Go say what each goroutine waits for.
func (m *manager) explain(t *testing.T) {
	if !t.Failed() {
		return
	}
	t.Logf("the log of %s:\n%s", m.Name, m.Tail())
	select {
	case <-m.Done:
	default:
		m.Signal(t, syscall.SIGQUIT)
		<-m.Done
	}
	all := m.Log()
	t.Logf("what it was doing:\n%s", all[max(0, len(all)-200_000):])
}

// replaceEnded replaces the manager at a place if it has ended: a manager that cannot renew its lease in time on a busy host exits.
func (w *world) replaceEnded(t *testing.T, both []*manager, i int) {
	t.Helper()
	select {
	case <-both[i].Done:
		both[i].kill(t)
		both[i] = w.startManager(t)
	default:
	}
}

// awaitLeader returns which of two managers holds the lease, once one of them does.
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

// awaitLease waits until the manager at a place holds the lease.
func (w *world) awaitLease(t *testing.T, both []*manager, i int) {
	t.Helper()
	eventually(t, "the other takes the lease", func() bool {
		w.replaceEnded(t, both, i)
		return w.holds(t, both[i])
	})
}

// holds reports whether a manager holds the lease, and notes since when.
func (w *world) holds(t *testing.T, m *manager) bool {
	t.Helper()
	current, err := w.kube.CoordinationV1().Leases(w.namespace).Get(t.Context(), lease, metav1.GetOptions{})
	if err != nil || ptr.Deref(current.Spec.HolderIdentity, "") != m.Name {
		return false
	}
	m.live.From = current.Spec.AcquireTime.Time
	return true
}
