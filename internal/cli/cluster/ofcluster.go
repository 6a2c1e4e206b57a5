package cluster

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/complete"
)

// Clusters are the names of Clusters, for completion.
var Clusters = complete.Resource{GroupVersionResource: v1alpha1.SchemeGroupVersion.WithResource("clusters")}

// OfCluster returns the kubeconfig of a Cluster.
func OfCluster(ctx context.Context, c client.Client, name string) ([]byte, error) {
	var cluster v1alpha1.Cluster
	err := c.Get(ctx, client.ObjectKey{Name: name}, &cluster)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no Cluster %q; keelson cluster list lists them", name)
	}
	if err != nil {
		return nil, fmt.Errorf("get Cluster %s: %w", name, err)
	}
	ref := cluster.Status.KubeconfigRef
	if ref == nil || ref.SecretRef == nil {
		return nil, fmt.Errorf("there is no kubeconfig of Cluster %s yet; kubectl describe cluster %[1]s has the reason", name)
	}
	var secret corev1.Secret
	if err := c.Get(ctx, client.ObjectKey{Namespace: ref.SecretRef.Namespace, Name: ref.SecretRef.Name}, &secret); err != nil {
		return nil, fmt.Errorf("get the kubeconfig of Cluster %s: %w", name, err)
	}
	text := secret.Data[cmp.Or(ref.SecretRef.Key, v1alpha1.SecretKey)]
	if !metav1.IsControlledBy(&secret, &cluster) || len(text) == 0 {
		// The name alone does not tell whose it is: a user of another Cluster may have a Secret of this name.
		return nil, fmt.Errorf("the Secret %s/%s has no kubeconfig of Cluster %s; the condition KubeconfigAvailable in `kubectl describe cluster %[3]s` has the reason",
			secret.Namespace, secret.Name, name)
	}
	return text, nil
}
