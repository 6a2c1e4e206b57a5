package kubeconfig

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/confine"
)

// NewValidator returns an admission check for Kubeconfigs of a manager that may read the Secrets of one namespace and files in
// dirs. It reports the errors that the CRD's schema cannot detect. The conditions of an existing Kubeconfig report the same errors.
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

// onlyIn is the message about the namespace of Secrets.
func onlyIn(namespace string) string {
	return fmt.Sprintf("this manager may read Secrets in the namespace %s only", namespace)
}

// notAllowed is the message for a file outside the allowed directories.
func notAllowed(err error, dirs confine.Dirs) string {
	return fmt.Sprintf("%v; clusters.rkeConfigDirs of the manager allows: %s", err, dirs)
}
