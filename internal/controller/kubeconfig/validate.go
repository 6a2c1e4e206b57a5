package kubeconfig

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/confine"
)

// NewValidator returns what refuses Kubeconfigs for a manager that may read the Secrets of one namespace, and files in some
// directories: every mistake that the definition lets through, with its field. The conditions of a Kubeconfig that is stored
// all the same say the same.
func NewValidator(secretNamespace string, dirs confine.Dirs) func(*v1alpha1.Kubeconfig) field.ErrorList {
	spec := field.NewPath("spec")
	return func(k *v1alpha1.Kubeconfig) field.ErrorList {
		if ref := k.Spec.SecretRef; ref != nil {
			if ref.Namespace != secretNamespace {
				return field.ErrorList{field.Invalid(spec.Child("secretRef", "namespace"), ref.Namespace, onlyIn(secretNamespace))}
			}
			return nil
		}
		path := cmp.Or(k.Spec.ConfigPath, k.Spec.LegacyConfigPath)
		if path == "" {
			return nil
		}
		if _, err := dirs.Check(path); err != nil {
			return field.ErrorList{field.Invalid(spec.Child("configPath"), path, notAllowed(err, dirs))}
		}
		return nil
	}
}

// onlyIn says which Secrets are read.
func onlyIn(namespace string) string {
	return fmt.Sprintf("this manager may read Secrets in the namespace %s only", namespace)
}

// notAllowed says why a file is not read, and which are.
func notAllowed(err error, dirs confine.Dirs) string {
	return fmt.Sprintf("%v; --rke-config-dirs of the manager allows: %s", err, dirs)
}
