package cluster

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// The Secret of the Cluster a-kubeconfig is named as that of the user kubeconfig of the Cluster a.
func TestOfCluster(t *testing.T) {
	const name = "a-kubeconfig-kubeconfig"
	cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "a-kubeconfig", UID: "uid"}}
	cluster.Status.KubeconfigRef = &v1alpha1.KubeconfigReference{SecretRef: &v1alpha1.SecretReference{Namespace: "home", Name: name}}
	for owner, good := range map[apitypes.UID]bool{"uid": true, "another": false, "": false} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "home", Name: name}, Data: map[string][]byte{v1alpha1.SecretKey: []byte("private")}}
		if owner != "" {
			of := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "any", UID: owner}}
			secret.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(of, v1alpha1.SchemeGroupVersion.WithKind("Cluster"))}
		}
		c := clientfake.NewClientBuilder().WithScheme(harness.Scheme(t, v1alpha1.AddToScheme, corev1.AddToScheme)).WithObjects(cluster, secret).Build()
		text, err := OfCluster(t.Context(), c, cluster.Name)
		if good != (err == nil) || good != (string(text) == "private") || err != nil && !strings.Contains(err.Error(), "KubeconfigAvailable") {
			t.Errorf("of the owner %q: %q, %v", owner, text, err)
		}
	}
}
