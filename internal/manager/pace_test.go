package manager

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/keelson-dev/keelson/internal/testing/env"
)

// newTestLock returns the lock of a replica as addLeaderElection makes it.
func newTestLock(t *testing.T, namespace, identity string, retry time.Duration) *pacedLock {
	t.Helper()
	client, err := coordinationv1client.NewForConfig(env.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	return newPacedLock(&resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: "lock"}, Client: client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}, client.Leases(namespace), "lock", retry)
}

func recordOf(identity string, lasts int) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{
		HolderIdentity: identity, LeaseDurationSeconds: lasts, AcquireTime: metav1.Now(), RenewTime: metav1.Now(),
	}
}

// A standby that looks waits until there is something to see: here until the leader gives up, long before the retry
// period is over.
func TestStandbySeesARelease(t *testing.T) {
	namespace := env.Namespace(t)
	leader, standby := newTestLock(t, namespace, "leader", time.Hour), newTestLock(t, namespace, "standby", time.Hour)
	if err := leader.Create(t.Context(), recordOf("leader", 3600)); err != nil {
		t.Fatal(err)
	}
	if record, _, err := standby.Get(t.Context()); err != nil || record.HolderIdentity != "leader" {
		t.Fatalf("the first look: got %v, %v, want the leader at once", record, err)
	}
	seen := make(chan string, 1)
	go func() {
		record, _, err := standby.Get(t.Context())
		seen <- map[bool]string{true: "holder " + record.HolderIdentity, false: "an error"}[err == nil]
	}()
	select {
	case got := <-seen:
		t.Fatalf("it did not wait: %s", got)
	case <-time.After(200 * time.Millisecond):
	}
	if err := leader.Update(t.Context(), recordOf("", 1)); err != nil {
		t.Fatal(err)
	}
	if got := within(t, "the standby to see it", seen); got != "holder " {
		t.Errorf("the standby sees %q, want no holder", got)
	}
	if got := standby.previous(); got != "leader" {
		t.Errorf("the holder before: got %q, want leader", got)
	}
	// Nobody has it: there is nothing to wait for.
	began := time.Now()
	if _, _, err := standby.Get(t.Context()); err != nil || time.Since(began) > soon {
		t.Errorf("a look at a free lease: %v after %v", err, time.Since(began))
	}
}

// A standby does not wait longer than the lease of a silent leader.
func TestStandbySeesTheEndOfALease(t *testing.T) {
	namespace := env.Namespace(t)
	leader, standby := newTestLock(t, namespace, "leader", time.Hour), newTestLock(t, namespace, "standby", time.Hour)
	if err := leader.Create(t.Context(), recordOf("leader", 1)); err != nil {
		t.Fatal(err)
	}
	for range 3 { // the second look waits for the end, the third finds that it is over
		if _, _, err := standby.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if since := time.Since(standby.noticed); since < time.Second || since > soon {
		t.Errorf("it waited %v for the end of a lease of 1 s", since)
	}
}

// A leader that wakes up after another one took over leaves the lease to that one, although the elector tells it to give
// the lease up.
func TestOnlyTheHolderGivesUp(t *testing.T) {
	namespace := env.Namespace(t)
	woken, leader := newTestLock(t, namespace, "woken", time.Hour), newTestLock(t, namespace, "leader", time.Hour)
	if err := woken.Create(t.Context(), recordOf("woken", 1)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := leader.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := leader.Update(t.Context(), recordOf("leader", 15)); err != nil {
		t.Fatal(err)
	}
	// What the elector does to give up.
	if _, _, err := woken.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := woken.Update(t.Context(), recordOf("", 1)); err != nil {
		t.Errorf("to give up what somebody else has: %v", err)
	}
	record, _, err := leader.Get(t.Context())
	if err != nil || record.HolderIdentity != "leader" {
		t.Errorf("the holder: got %v, %v, want leader", record, err)
	}
}

// The leader renews no more often than the retry period asks for, at once if the last renewal went wrong and it has
// looked since, and not at all when it was told to end.
func TestLeaderPacesItsRenewals(t *testing.T) {
	const retry = 300 * time.Millisecond
	leader := newTestLock(t, env.Namespace(t), "leader", retry)
	if err := leader.Create(t.Context(), recordOf("leader", 15)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for range 3 {
		if err := leader.Update(t.Context(), recordOf("leader", 15)); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took < 3*retry {
		t.Errorf("three renewals took %v, want %v at least", took, 3*retry)
	}
	leader.retry = time.Hour
	if _, _, err := leader.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := leader.Update(t.Context(), recordOf("leader", 15)); err != nil {
		t.Errorf("a renewal after a look: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := leader.Update(ctx, recordOf("leader", 15)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a renewal that is not due when it is over: got %v", err)
	}
	// It gives up at once.
	if err := leader.Update(t.Context(), recordOf("", 1)); err != nil {
		t.Errorf("a release: %v", err)
	}
}

// An elector that is told to stop asks its lock once more. That is no error of the lock, and none is to be logged.
func TestStopIsNoError(t *testing.T) {
	namespace := env.Namespace(t)
	leader, standby := newTestLock(t, namespace, "leader", time.Hour), newTestLock(t, namespace, "standby", time.Hour)
	if err := leader.Create(t.Context(), recordOf("leader", 3600)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := standby.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := leader.Update(stopped, recordOf("leader", 3600)); err != nil {
		t.Errorf("the leader: %v", err)
	}
	if record, _, err := standby.Get(stopped); err != nil || record.HolderIdentity != "leader" {
		t.Errorf("the standby: got %v, %v, want what it saw last", record, err)
	}
	late, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	if err := leader.Update(late, recordOf("leader", 3600)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a renewal that is too late: got %v, want that the time is over", err)
	}
}
