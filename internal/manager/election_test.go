package manager

import (
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/manager/election"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// A manager of an earlier version has its Lease in another namespace. It and this one take turns, whoever is first.
func TestEarlierVersionsAndThisOneTakeTurns(t *testing.T) {
	earlier, present := env.Namespace(t), env.Namespace(t)
	replica := func(identity, namespace, former string) *running {
		o := newTestOptions(t, present)
		o.LeaderElection = election.Options{
			Enabled: ptr.To(true), LockName: "lock", LockNamespace: namespace, Identity: identity,
			LeaseDuration: time.Hour, RenewDeadline: time.Minute, RetryPeriod: 50 * time.Millisecond,
		}
		o.former.lease = former
		return start(t, o, idle(identity))
	}
	stop := func(m *running) {
		t.Helper()
		m.stop()
		if err := within(t, "the manager to stop", m.result); err != nil {
			t.Errorf("Start: %v", err)
		}
	}
	waits := func(m *running, what string) {
		t.Helper()
		within(t, what+" to fill its caches", m.readiness.synced)
		select {
		case <-m.Ready():
			t.Errorf("%s leads as well", what)
		case <-time.After(10 * 50 * time.Millisecond):
		}
	}
	first := replica("first", earlier, "")
	within(t, "the earlier version to lead", first.Ready())
	second := replica("second", present, earlier)
	waits(second, "this version")
	stop(first)
	within(t, "this version to lead", second.Ready())
	third, fourth := replica("third", earlier, ""), replica("fourth", present, earlier)
	waits(third, "the earlier version")
	waits(fourth, "another replica of this version")
	stop(fourth)
	stop(second)
	within(t, "the earlier version to lead again", third.Ready())
	stop(third)
}
