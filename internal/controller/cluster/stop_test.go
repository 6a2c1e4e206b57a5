package cluster

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
)

// Whether a cluster is to run has one answer. What is said about it, and what follows from it, is asserted in reconciles.
func TestDecideStop(t *testing.T) {
	const idle, spec = "a client connects to the idle cluster", "spec.running is true"
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	after := func(since time.Duration) Observation {
		return Observation{Applied: true, Attended: true, Running: true, LastClient: now.Add(-since)}
	}
	asleep := Observation{Applied: true, Stopped: true, Idle: true}
	busy, unsupervised, broken, unknown := after(time.Hour), after(time.Hour), after(time.Hour), after(time.Hour)
	busy.Operation = &Operation{State: v1alpha1.OperationProcessing}
	unsupervised.Attended, broken.Running, unknown.LastClient = false, false, time.Time{}
	for _, tt := range []struct {
		name    string
		outside Observation
		change  func(*v1alpha1.Cluster)
		seen    observation
		until   string        // what makes it run; empty means that it is to run
		next    time.Duration // until it is idle; zero means that this is not known
	}{
		{name: "nothing is known yet"},
		{name: "no client for exactly that long", outside: after(30 * time.Minute), until: idle},
		{name: "a client a second later", outside: after(30*time.Minute - time.Second), next: time.Second},
		{name: "without spec.idle", outside: after(time.Hour), change: func(c *v1alpha1.Cluster) { c.Spec.Idle = nil }},
		{name: "spec.running wins", outside: asleep, change: func(c *v1alpha1.Cluster) { c.Spec.Running = ptr.To(false) }, until: spec},
		{name: "spec.running of a cluster that nobody can observe", seen: observation{err: ErrUnavailable},
			change: func(c *v1alpha1.Cluster) { c.Spec.Running = ptr.To(false) }, until: spec},
		{name: "the engine has an error", outside: asleep, seen: observation{err: ErrUnavailable}},
		{name: "a paused cluster keeps running", outside: after(time.Hour), change: func(c *v1alpha1.Cluster) { c.Spec.Paused = true }},
		{name: "an operation is in progress", outside: busy},
		{name: "nobody supervises it yet", outside: unsupervised},
		{name: "a component is being restarted", outside: broken},
		{name: "nobody knows its clients", outside: unknown},
		{name: "a restore is due", outside: after(time.Hour), seen: observation{restore: restoreSeen{request: &Restore{Token: "now"}}}},
		{name: "it was stopped, and no client has connected", outside: asleep, until: idle},
		{name: "it was stopped and then paused", outside: asleep, change: func(c *v1alpha1.Cluster) { c.Spec.Paused = true }, until: idle},
		{name: "it was stopped, and spec.idle was removed", outside: asleep, change: func(c *v1alpha1.Cluster) { c.Spec.Idle = nil }},
		{name: "it was stopped, and is being deleted", outside: asleep, change: func(c *v1alpha1.Cluster) { c.DeletionTimestamp = &metav1.Time{Time: now} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cluster := &v1alpha1.Cluster{}
			cluster.Spec.Idle = &v1alpha1.ClusterIdle{StopAfter: metav1.Duration{Duration: 30 * time.Minute}}
			if tt.change != nil {
				tt.change(cluster)
			}
			tt.seen.outside = tt.outside
			got := decideStop(cluster, tt.seen, now)
			if got.wanted != (tt.until != "") || got.until != tt.until || got.idle != (tt.until == idle) || !got.next.IsZero() && got.next.Sub(now) != tt.next || got.next.IsZero() != (tt.next == 0) {
				t.Errorf("decideStop = %+v", got)
			}
		})
	}
}
