package local_test

import (
	"context"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kubeconfig"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// whoAmI asks the API of a cluster who the user of a kubeconfig is.
func whoAmI(ctx context.Context, t *testing.T, data []byte) (authenticationv1.UserInfo, error) {
	t.Helper()
	access, err := kubeconfig.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	review, err := kubernetes.NewForConfigOrDie(access.Config).AuthenticationV1().SelfSubjectReviews().
		Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	return review.Status.UserInfo, nil
}

// setUsers sets spec.users.
func (m *managed) setUsers(t *testing.T, users ...v1alpha1.ClusterUser) {
	t.Helper()
	harness.Eventually(t, "the users are changed", func() bool {
		c := m.get(t)
		c.Spec.Users = users
		return m.api.Update(t.Context(), c) == nil
	})
}

// kubeconfigOf waits for a kubeconfig of a user that differs from an earlier one.
func (m *managed) kubeconfigOf(t *testing.T, user, before string) string {
	t.Helper()
	var secret corev1.Secret
	harness.Eventually(t, "the user has a kubeconfig", func() bool {
		err := m.api.Get(t.Context(), client.ObjectKey{Namespace: m.namespace, Name: m.cluster.Name + "-kubeconfig-" + user}, &secret)
		return err == nil && string(secret.Data[v1alpha1.SecretKey]) != before
	})
	return string(secret.Data[v1alpha1.SecretKey])
}

// Each user has its own credentials, which are rotated and revoked without the others.
func TestLongUsers(t *testing.T) {
	t.Parallel()
	m := startManaged(t, "users-", newOptions(t))
	alice := v1alpha1.ClusterUser{Name: "alice", Groups: []string{"zeta", "dev", "a@example.com"}, TTL: &metav1.Duration{Duration: 24 * time.Hour}}
	bob := v1alpha1.ClusterUser{Name: "bob"}
	m.setUsers(t, alice, bob)
	first, other := m.kubeconfigOf(t, "alice", ""), m.kubeconfigOf(t, "bob", "")
	is, err := whoAmI(t.Context(), t, []byte(first))
	if err != nil || is.Username != "alice" || len(is.Groups) != 4 { // and system:authenticated
		t.Fatalf("the user is %+v, %v", is, err)
	}
	access, err := kubeconfig.Parse([]byte(first))
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(access.NotAfter); left > 24*time.Hour || left < 23*time.Hour {
		t.Errorf("it is valid for %v", left)
	}
	_, err = kubernetes.NewForConfigOrDie(access.Config).CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("a user without permissions lists Secrets: %v", err)
	}

	isRevoked := func(data string) func() bool {
		return func() bool {
			_, err := whoAmI(t.Context(), t, []byte(data))
			return apierrors.IsUnauthorized(err)
		}
	}
	isAccepted := func(data string) {
		t.Helper()
		if _, err := whoAmI(t.Context(), t, []byte(data)); err != nil {
			t.Errorf("the kubeconfig is rejected: %v", err)
		}
	}
	alice.RotateRequestedAt = &metav1.Time{Time: time.Unix(1, 0)}
	m.setUsers(t, alice, bob)
	second := m.kubeconfigOf(t, "alice", first)
	harness.Eventually(t, "the earlier kubeconfig is rejected", isRevoked(first))
	isAccepted(second)
	isAccepted(other)

	alice.Groups = nil
	m.setUsers(t, alice, bob)
	third := m.kubeconfigOf(t, "alice", second)
	harness.Eventually(t, "the kubeconfig with more groups is rejected", isRevoked(second))
	isAccepted(third)

	m.setUsers(t, bob)
	harness.Eventually(t, "the removed user is rejected", isRevoked(third))
	isAccepted(other)
	m.setUsers(t)
	harness.Eventually(t, "the last user is rejected", isRevoked(other))
	if data, err := m.user().read(t.Context()); err != nil {
		t.Error(err)
	} else {
		isAccepted(string(data))
	}
	m.end(t)
}
