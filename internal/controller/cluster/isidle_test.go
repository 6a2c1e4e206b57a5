package cluster

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
)

func TestIsIdle(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	after := func(since time.Duration) Observation {
		return Observation{Applied: true, Attended: true, Running: true, LastClient: now.Add(-since)}
	}
	asleep := Observation{Applied: true, Stopped: true, Idle: true}
	busy := after(time.Hour)
	busy.Operation = &Operation{State: v1alpha1.OperationProcessing}
	unsupervised := after(time.Hour)
	unsupervised.Attended = false
	broken := after(time.Hour)
	broken.Running = false
	unknown := after(time.Hour)
	unknown.LastClient = time.Time{}
	for _, tt := range []struct {
		name    string
		outside Observation
		change  func(*v1alpha1.Cluster)
		seen    observation
		want    bool
	}{
		{name: "no client for exactly that long", outside: after(30 * time.Minute), want: true},
		{name: "a client a second later", outside: after(30*time.Minute - time.Second)},
		{name: "without spec.idle", outside: after(time.Hour), change: func(c *v1alpha1.Cluster) { c.Spec.Idle = nil }},
		{name: "spec.running wins", outside: after(time.Hour), change: func(c *v1alpha1.Cluster) { c.Spec.Running = ptr.To(false) }},
		{name: "a paused cluster keeps running", outside: after(time.Hour), change: func(c *v1alpha1.Cluster) { c.Spec.Paused = true }},
		{name: "an operation is in progress", outside: busy},
		{name: "nobody supervises it yet", outside: unsupervised},
		{name: "a component is being restarted", outside: broken},
		{name: "nobody knows its clients", outside: unknown},
		{name: "a restore is due", outside: after(time.Hour), seen: observation{restore: restoreSeen{request: &Restore{Token: "now"}}}},
		{name: "it was stopped, and no client has connected", outside: asleep, want: true},
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
			if got := isIdle(cluster, tt.seen, now); got != tt.want {
				t.Errorf("isIdle = %t", got)
			}
		})
	}
}
