package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
)

// A Cluster is never deleted by spec.expiresAfter before Expiring was True for the time of the notice.
func TestDecideExpiry(t *testing.T) {
	created := time.Unix(1_000_000, 0)
	now := created.Add(10 * time.Hour)
	expiring := func(since time.Time) []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.ConditionExpiring, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(since)}}
	}
	for _, tt := range []struct {
		name       string
		after      time.Duration
		conditions []metav1.Condition
		change     func(*v1alpha1.Cluster)
		deleted    bool
		at         time.Time
	}{
		{name: "later", after: 11 * time.Hour, at: created.Add(11 * time.Hour)},
		{name: "set on an older Cluster", after: time.Hour, at: now.Add(v1alpha1.ExpiryNotice)},
		{name: "just announced", after: time.Hour, conditions: expiring(now.Add(-time.Second)), at: now.Add(v1alpha1.ExpiryNotice - time.Second)},
		{name: "announced in time", after: 10 * time.Hour, conditions: expiring(now.Add(-v1alpha1.ExpiryNotice)), deleted: true, at: now},
		{name: "announced long ago", after: time.Hour, conditions: expiring(created.Add(55 * time.Minute)), deleted: true, at: created.Add(time.Hour)},
		{name: "not announced, as it was paused", after: time.Hour, conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionExpiring, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPaused, LastTransitionTime: metav1.NewTime(created),
		}}, at: now.Add(v1alpha1.ExpiryNotice)},
		{name: "paused", after: time.Hour, change: func(c *v1alpha1.Cluster) { c.Spec.Paused = true }, at: created.Add(time.Hour)},
		{name: "protected", after: time.Hour, change: func(c *v1alpha1.Cluster) { c.Spec.DeletionProtection = true }, at: created.Add(time.Hour)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(created)}}
			c.Spec.ExpiresAfter, c.Status.Conditions = &metav1.Duration{Duration: tt.after}, tt.conditions
			if tt.change != nil {
				tt.change(c)
			}
			p := decide(c, observation{}, now)
			if at, _ := expiresAt(c, now); !at.Equal(tt.at) || (p.action == expire) != tt.deleted {
				t.Errorf("it expires at %s, want %s; the action is %s", at, tt.at, p.action)
			}
			if !tt.deleted && tt.change == nil && (p.again <= 0 || p.again > tt.at.Sub(now)) {
				t.Errorf("it is looked at after %s", p.again)
			}
		})
	}
}

// Once the deadline of force-delete has passed, nothing is left to wait for: not even what is paused is looked at again and again.
func TestDecideForcedDeletion(t *testing.T) {
	deleted := time.Unix(1_000_000, 0)
	for _, tt := range []struct {
		name   string
		change func(*v1alpha1.Cluster)
		after  time.Duration
		want   action
		again  time.Duration
	}{
		{"paused, before the deadline", func(c *v1alpha1.Cluster) { c.Spec.Paused = true }, time.Minute, keep, 9 * time.Minute},
		{"paused, after the deadline", func(c *v1alpha1.Cluster) { c.Spec.Paused = true }, time.Hour, giveUp, 0},
		{"protected, after the deadline", func(c *v1alpha1.Cluster) { c.Spec.DeletionProtection = true }, time.Hour, protected, 0},
		{"with the finalizer of somebody else, before the deadline", func(c *v1alpha1.Cluster) { c.Finalizers = []string{"example.com/other"} }, time.Minute, keep, 0},
		{"with the finalizer of somebody else, after the deadline", func(c *v1alpha1.Cluster) { c.Finalizers = []string{"example.com/other"} }, time.Hour, keep, 0},
		{"at the deadline", func(*v1alpha1.Cluster) {}, 10 * time.Minute, giveUp, 0},
		{"before the deadline", func(*v1alpha1.Cluster) {}, 9 * time.Minute, remove, time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{
				DeletionTimestamp: &metav1.Time{Time: deleted}, Finalizers: []string{v1alpha1.Finalizer},
				Annotations: map[string]string{v1alpha1.AnnotationForceDelete: "10m"},
			}}
			tt.change(c)
			seen := observation{}
			seen.outside.Exists = true
			if p := decide(c, seen, deleted.Add(tt.after)); p.action != tt.want || p.again != tt.again {
				t.Errorf("the action is %s, again after %s; want %s, %s", p.action, p.again, tt.want, tt.again)
			}
		})
	}
}

// A Secret that nobody has touched is not called modified.
func TestDecideSecret(t *testing.T) {
	const endpoint, moved = "https://127.0.0.1:20001", "https://127.0.0.1:20002"
	kubeconfig := func(server, token string) []byte {
		return fmt.Appendf(nil, `{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: %q}}], users: [{name: u, user: {token: %q}}],
contexts: [{name: x, context: {cluster: c, user: u}}], current-context: x}`, server, token)
	}
	for _, tt := range []struct {
		name    string
		was, is []byte
		want    childAction
	}{
		{"it is the present one", kubeconfig(endpoint, "a"), kubeconfig(endpoint, "a"), childKeep},
		{"the API has moved", kubeconfig(endpoint, "a"), kubeconfig(moved, "a"), childMove},
		{"the API has moved, with other credentials", kubeconfig(endpoint, "a"), kubeconfig(moved, "b"), childMove},
		{"somebody has changed its server", kubeconfig("https://192.0.2.1", "a"), kubeconfig(endpoint, "a"), childRepair},
		{"somebody has changed its credentials", kubeconfig(endpoint, "b"), kubeconfig(endpoint, "a"), childRepair},
		{"somebody has damaged it", []byte("x"), kubeconfig(moved, "a"), childRepair},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "demo", UID: "demo"}}
			c.Status.Endpoint = endpoint
			seen := observation{namespace: "keelson"}
			seen.outside.Kubeconfig = tt.was
			seen.secret = newSecret(c, seen)
			seen.outside.Kubeconfig = tt.is
			if got := decideSecret(c, seen); got != tt.want {
				t.Errorf("decideSecret = %s, want %s", got, tt.want)
			}
		})
	}
}

// Who removes rotateRequestedAt of a user, such as a tool that replaces the spec, does not revoke its credentials.
func TestRotationsOfUsersAreKept(t *testing.T) {
	first, second := metav1.NewTime(time.Unix(1, 0)), metav1.NewTime(time.Unix(2, 0))
	for _, test := range []struct {
		name              string
		spec, status, use *metav1.Time
	}{
		{"never requested", nil, nil, nil},
		{"requested", &first, nil, &first},
		{"requested again", &second, &first, &second},
		{"removed", nil, &first, &first},
	} {
		cluster := &v1alpha1.Cluster{
			Spec:   v1alpha1.ClusterSpec{Users: []v1alpha1.ClusterUser{{Name: "other"}, {Name: "alice", RotateRequestedAt: test.spec}}},
			Status: v1alpha1.ClusterStatus{Users: []v1alpha1.ClusterUserStatus{{Name: "alice", LastRotateRequestedAt: test.status}}},
		}
		want := []v1alpha1.ClusterUser{{Name: "other"}, {Name: "alice", RotateRequestedAt: test.use}}
		if diff := cmp.Diff(want, newRequest(cluster).Spec.Users); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
		seen := observation{users: map[string]*corev1.Secret{"alice": {ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cluster, kind)}}}}}
		if got := summarizeUserList(cluster, seen, plan{}, nil); len(got) != 1 || !got[0].LastRotateRequestedAt.Equal(test.use) {
			t.Errorf("%s: the status has %+v", test.name, got)
		}
	}
}
