package admission

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/config/webhook"
)

// Path is where the handler of a webhook of that name is.
func Path(name string) string { return "/validate/" + name }

// Configuration returns the ValidatingWebhookConfiguration for webhooks of these names, in these namespaces or, without
// any, in all. If address is not empty, the API server calls that host and port instead of a Service.
func Configuration(name string, names, namespaces []string, address string) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	wanted, err := webhook.Configuration()
	if err != nil {
		return nil, err
	}
	wanted.Name = name
	wanted.Webhooks = slices.DeleteFunc(wanted.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool {
		return !slices.Contains(names, w.Name)
	})
	for i := range wanted.Webhooks {
		w := &wanted.Webhooks[i]
		if len(namespaces) > 0 {
			w.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpIn, Values: namespaces,
			}}}
		}
		if address != "" {
			w.ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://" + address + Path(w.Name))}
		}
	}
	return wanted, nil
}

// InstallTrust returns a function for Options.Trust that creates or updates a configuration as a whole, for a manager without
// other replicas.
func InstallTrust(c client.Client, live client.Reader, wanted *admissionregistrationv1.ValidatingWebhookConfiguration) func(context.Context, []byte) error {
	return func(ctx context.Context, bundle []byte) error {
		wanted := wanted.DeepCopy()
		setBundle(wanted, bundle)
		present := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		err := live.Get(ctx, client.ObjectKeyFromObject(wanted), present)
		switch {
		case apierrors.IsNotFound(err):
			err = c.Create(ctx, wanted)
		case err == nil:
			wanted.ResourceVersion = present.ResourceVersion
			if isInstalled(present, wanted) {
				return nil
			}
			err = c.Update(ctx, wanted)
		}
		if err != nil {
			return fmt.Errorf("install ValidatingWebhookConfiguration %s: %w", wanted.Name, err)
		}
		return nil
	}
}

// isInstalled reports whether a configuration is as wanted, apart from what the API server fills in.
func isInstalled(present, wanted *admissionregistrationv1.ValidatingWebhookConfiguration) bool {
	return len(present.Webhooks) == len(wanted.Webhooks) && equality.Semantic.DeepDerivative(wanted.Webhooks, present.Webhooks)
}

// UpdateTrust returns a function for Options.Trust that fills in caBundle in the configuration of that name, which came
// with the installation.
func UpdateTrust(c client.Client, live client.Reader, name string) func(context.Context, []byte) error {
	return func(ctx context.Context, bundle []byte) error {
		present := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		err := live.Get(ctx, client.ObjectKey{Name: name}, present)
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("there is no ValidatingWebhookConfiguration %s: apply that of the installation, or start the manager with --webhook-bind-address=0", name)
		}
		if err == nil && setBundle(present, bundle) {
			err = c.Update(ctx, present)
		}
		if err != nil {
			return fmt.Errorf("write caBundle of ValidatingWebhookConfiguration %s: %w", name, err)
		}
		return nil
	}
}

// setBundle sets caBundle everywhere, and reports whether that changed anything.
func setBundle(configuration *admissionregistrationv1.ValidatingWebhookConfiguration, bundle []byte) bool {
	changed := false
	for i := range configuration.Webhooks {
		w := &configuration.Webhooks[i].ClientConfig
		changed = changed || !bytes.Equal(w.CABundle, bundle)
		w.CABundle = bundle
	}
	return changed
}
