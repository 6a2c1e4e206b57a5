package kubeconfig

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
)

// NewValidator returns what refuses Kubeconfigs for a manager that may read the Secrets of one namespace: every mistake that
// the definition lets through, with its field. The conditions of a Kubeconfig that is stored all the same say the same.
func NewValidator(secretNamespace string) func(*v1alpha1.Kubeconfig) field.ErrorList {
	return func(k *v1alpha1.Kubeconfig) field.ErrorList {
		if ref := k.Spec.SecretRef; ref != nil && ref.Namespace != secretNamespace {
			return field.ErrorList{field.Invalid(field.NewPath("spec", "secretRef", "namespace"), ref.Namespace, onlyIn(secretNamespace))}
		}
		return nil
	}
}

// onlyIn says which Secrets are read.
func onlyIn(namespace string) string {
	return fmt.Sprintf("this manager may read Secrets in the namespace %s only", namespace)
}
