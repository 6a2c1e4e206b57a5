package install

import (
	"net"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/admission"
)

// callDirectly makes the API server call the webhooks of a configuration at an address: no Service
// leads to a manager outside of the cluster.
func (w *world) callDirectly(t *testing.T, configuration, address string) {
	t.Helper()
	client, err := kubernetes.NewForConfig(w.admin)
	if err != nil {
		t.Fatal(err)
	}
	all := client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		present, err := all.Get(t.Context(), configuration, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for i := range present.Webhooks {
			webhook := &present.Webhooks[i]
			webhook.ClientConfig = admissionregistrationv1.WebhookClientConfig{
				URL: ptr.To("https://" + address + admission.Path(webhook.Name)), CABundle: webhook.ClientConfig.CABundle,
			}
		}
		_, err = all.Update(t.Context(), present, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatalf("configure the webhook address %s: %v", address, err)
	}
}

// hostAddress returns a free port, as 0, of an address of this host that an EndpointSlice can have: loopback cannot.
func hostAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		if of, ok := address.(*net.IPNet); ok && of.IP.IsGlobalUnicast() && of.IP.To4() != nil {
			return net.JoinHostPort(of.IP.String(), "0")
		}
	}
	t.Fatal("This host has no address besides loopback")
	return ""
}
