// Package webhook holds the ValidatingWebhookConfiguration by which an API server asks the manager before it stores an
// object. The binary, the manifests and the tests take it from here.
package webhook

import (
	_ "embed"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"
)

//go:embed validatingwebhookconfiguration.yaml
var file []byte

// Configuration returns it: one webhook for each kind, named as the definition of the kind, at a Service and without
// caBundle. Each call returns a fresh object, which the caller may change. An error means that this binary was built from
// a broken file.
func Configuration() (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := yaml.UnmarshalStrict(file, configuration); err != nil {
		return nil, fmt.Errorf("parse embedded file config/webhook/validatingwebhookconfiguration.yaml: %w", err)
	}
	return configuration, nil
}
