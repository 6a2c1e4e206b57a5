package cluster

import (
	"bytes"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/kubeconfig"
	"github.com/keelson-dev/keelson/internal/names"
)

const labelManagedBy = "app.kubernetes.io/managed-by"

// secretName returns the name of the Secret with the kubeconfig of a Cluster.
func secretName(cluster string) string {
	const suffix = "-kubeconfig"
	return names.Shorten(cluster, validation.DNS1123SubdomainMaxLength-len(suffix)) + suffix
}

// newSecret returns the Secret with the kubeconfig of a Cluster.
func newSecret(cluster *v1alpha1.Cluster, seen observation) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: seen.namespace, Name: secretName(cluster.Name),
			Labels: newLabels(cluster), OwnerReferences: []metav1.OwnerReference{newOwnerReference(cluster)},
		},
		Type: v1alpha1.SecretTypeKubeconfig,
		Data: map[string][]byte{v1alpha1.SecretKey: seen.outside.Kubeconfig},
	}
}

// newKubeconfig returns the Kubeconfig of a Cluster.
func newKubeconfig(cluster *v1alpha1.Cluster, seen observation) *v1alpha1.Kubeconfig {
	return &v1alpha1.Kubeconfig{
		ObjectMeta: metav1.ObjectMeta{
			Name:   cluster.Name,
			Labels: newLabels(cluster), OwnerReferences: []metav1.OwnerReference{newOwnerReference(cluster)},
		},
		Spec: v1alpha1.KubeconfigSpec{
			ConfigPath: seen.outside.KubeconfigPath,
			SecretRef:  newSecretReference(cluster, seen),
		},
	}
}

// newSecretReference returns a reference to the Secret, or nil while there is no kubeconfig.
func newSecretReference(cluster *v1alpha1.Cluster, seen observation) *v1alpha1.SecretReference {
	if len(seen.outside.Kubeconfig) == 0 && (seen.secret == nil || !isControlled(seen.secret, cluster)) {
		return nil
	}
	return &v1alpha1.SecretReference{Namespace: seen.namespace, Name: secretName(cluster.Name), Key: v1alpha1.SecretKey}
}

func newLabels(cluster *v1alpha1.Cluster) map[string]string {
	return map[string]string{
		v1alpha1.LabelClusterName: names.Shorten(cluster.Name, validation.LabelValueMaxLength),
		labelManagedBy:            kube.FieldManager,
	}
}

// newOwnerReference returns a controller reference with the API group, which the garbage collector requires.
func newOwnerReference(cluster *v1alpha1.Cluster) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: cluster.Name, UID: cluster.UID,
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}
}

func isSecretGood(secret *corev1.Secret, cluster *v1alpha1.Cluster, seen observation) bool {
	return bytes.Equal(secret.Data[v1alpha1.SecretKey], seen.outside.Kubeconfig) && hasOurMeta(secret, cluster)
}

func isKubeconfigGood(found *v1alpha1.Kubeconfig, cluster *v1alpha1.Cluster, seen observation) bool {
	want := newKubeconfig(cluster, seen).Spec
	if found.Spec.ConfigPath != want.ConfigPath || found.Spec.LegacyConfigPath != "" {
		return false
	}
	return ptr.Equal(found.Spec.SecretRef, want.SecretRef) && hasOurMeta(found, cluster)
}

// hasOurMeta reports whether a child has the labels of newLabels and exactly one, complete reference to its owner.
func hasOurMeta(child metav1.Object, cluster *v1alpha1.Cluster) bool {
	labels := maps.Clone(child.GetLabels())
	if labels == nil {
		return false
	}
	maps.Copy(labels, newLabels(cluster))
	if !maps.Equal(labels, child.GetLabels()) {
		return false
	}
	found := 0
	for _, ref := range child.GetOwnerReferences() {
		if ref.UID == cluster.UID {
			if !equalReference(ref, newOwnerReference(cluster)) {
				return false
			}
			found++
		}
	}
	return found == 1
}

func equalReference(a, b metav1.OwnerReference) bool {
	return a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Name == b.Name && a.UID == b.UID &&
		ptr.Equal(a.Controller, b.Controller) && ptr.Equal(a.BlockOwnerDeletion, b.BlockOwnerDeletion)
}

// adopt sets the labels and the owner reference of a child, and keeps its references to other owners.
func adopt(child client.Object, cluster *v1alpha1.Cluster) {
	labels := maps.Clone(child.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, newLabels(cluster))
	child.SetLabels(labels)
	references := []metav1.OwnerReference{newOwnerReference(cluster)}
	for _, ref := range child.GetOwnerReferences() {
		if ref.UID != cluster.UID {
			references = append(references, ref)
		}
	}
	child.SetOwnerReferences(references)
}

// notOwnedAction distinguishes a child of an earlier Cluster with this name, which the garbage collector will delete, from an
// object with another owner.
func notOwnedAction(child metav1.Object, cluster *v1alpha1.Cluster) childAction {
	for _, ref := range child.GetOwnerReferences() {
		version, err := schema.ParseGroupVersion(ref.APIVersion)
		if err == nil && version.Group == kind.Group && ref.Kind == kind.Kind && ref.Name == cluster.Name {
			return childWait
		}
	}
	return childBlocked
}

// updateOf returns the action on a Secret whose kubeconfig differs from the present one. The endpoint is the last known one of the API.
func updateOf(was, is []byte, endpoint string) childAction {
	old, err := kubeconfig.Parse(was)
	if err != nil {
		return childRepair
	}
	present, err := kubeconfig.Parse(is)
	switch {
	case err != nil:
		return childRepair
	case old.Server == present.Server && present.NotAfter.After(old.NotAfter):
		return childRotate
	case old.Server == endpoint && present.Server != endpoint:
		return childMove
	}
	return childRepair
}
