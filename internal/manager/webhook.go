package manager

import (
	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/keelson-dev/keelson/internal/admission"
	"github.com/keelson-dev/keelson/internal/manager/preflight"
	"github.com/keelson-dev/keelson/internal/manager/serving"
)

// Webhook says whether, and how, the API server asks this manager before it stores objects.
type Webhook struct {
	// Address is where the webhook is served, as host:port; port 0 takes a free one. Empty or Off: nowhere.
	Address string
	// ServiceNamespace and ServiceName name the Service by which the API server reaches the replicas. An empty
	// namespace is that of the manager's Pod; outside of a Pod "keelson-system". The Secret with the authority of the
	// certificates is there, too.
	ServiceNamespace, ServiceName string
	// ConfigurationName is the name of the ValidatingWebhookConfiguration.
	ConfigurationName string
	// CertDir is a directory with tls.crt and tls.key, if something else, such as cert-manager, renews them and sets caBundle. Empty:
	// the manager does both.
	CertDir string
	// Direct says that the API server reaches this process at Address, without a Service, and that it is the only one:
	// then the manager makes the ValidatingWebhookConfiguration itself, and keeps its authority in memory.
	Direct bool

	// Times are those of the certificates.
	Times admission.Times
}

// NewWebhook returns the defaults: no webhook.
func NewWebhook() Webhook {
	return Webhook{Address: Off, ServiceName: "keelson-webhook", ConfigurationName: "keelson", Times: admission.DefaultTimes()}
}

// AddFlags adds a flag for every option to fs, with the present values as defaults.
func (w *Webhook) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&w.Address, "webhook-bind-address", w.Address,
		"`host:port` of the admission webhook; 0 disables it")
	w.AddServiceFlags(fs)
	fs.StringVar(&w.CertDir, "webhook-cert-dir", w.CertDir,
		"`directory` with tls.crt and tls.key of the webhook, if something else, such as cert-manager, renews them and sets caBundle "+
			"(default: the manager does both)")
}

// AddServiceFlags adds those of the flags that say by which names the API server finds the webhook.
func (w *Webhook) AddServiceFlags(fs *pflag.FlagSet) {
	fs.StringVar(&w.ServiceName, "webhook-service", w.ServiceName,
		"name of the Service of the webhook")
	fs.StringVar(&w.ServiceNamespace, "webhook-service-namespace", w.ServiceNamespace,
		"namespace of the webhook's Service and of the Secret with its certificate authority (default: the namespace of the Pod, otherwise keelson-system)")
	fs.StringVar(&w.ConfigurationName, "webhook-configuration", w.ConfigurationName,
		"name of the ValidatingWebhookConfiguration whose caBundle the manager updates")
}

func (w *Webhook) validate(wrong func(flag string, value any, why string, args ...any)) {
	if err := serving.CheckAddress(w.Address); err != nil {
		wrong("webhook-bind-address", w.Address, "%v", err)
	}
	if problems := validation.IsDNS1035Label(w.ServiceName); len(problems) > 0 {
		wrong("webhook-service", w.ServiceName, "is not a valid name of a Service: %s", problems[0])
	}
	if w.ServiceNamespace != "" {
		if problems := validation.IsDNS1123Label(w.ServiceNamespace); len(problems) > 0 {
			wrong("webhook-service-namespace", w.ServiceNamespace, "is not a valid namespace: %s", problems[0])
		}
	}
	if problems := validation.IsDNS1123Subdomain(w.ConfigurationName); len(problems) > 0 {
		wrong("webhook-configuration", w.ConfigurationName, "is not a valid name of a ValidatingWebhookConfiguration: %s", problems[0])
	}
}

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,resourceNames=keelson,verbs=get;update
// +kubebuilder:rbac:namespace=keelson-system,groups="",resources=secrets,verbs=create
// +kubebuilder:rbac:namespace=keelson-system,groups="",resources=secrets,resourceNames=keelson-webhook-ca,verbs=get;update

// requirements are what keeping the certificates takes.
func (w *Webhook) requirements() []preflight.Requirement {
	if !serving.IsOn(w.Address) || w.CertDir != "" {
		return nil
	}
	configurations := rbacv1.PolicyRule{
		APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"validatingwebhookconfigurations"},
		ResourceNames: []string{w.ConfigurationName}, Verbs: []string{"get", "update"},
	}
	all := []preflight.Requirement{{Owner: "webhook", Role: "keelson-webhook", Rules: []rbacv1.PolicyRule{configurations}}}
	if w.Direct {
		// A rule cannot limit create to a name.
		configurations.ResourceNames, configurations.Verbs = nil, []string{"create"}
		all[0].Rules = append(all[0].Rules, configurations)
		return all
	}
	secrets := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}}
	create, change := secrets, secrets
	create.Verbs = []string{"create"}
	change.Verbs, change.ResourceNames = []string{"get", "update"}, []string{admission.SecretName}
	return append(all, preflight.Requirement{
		Owner: "webhook in its namespace", Role: "keelson-webhook-" + w.ServiceNamespace,
		Rules: []rbacv1.PolicyRule{create, change}, Namespaces: []string{w.ServiceNamespace},
	})
}

// WebhookConfiguration returns the configuration for the webhook of managers with these options, behind a Service, without caBundle.
func WebhookConfiguration(o Options) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	if err := prepare(&o, controllers); err != nil {
		return nil, err
	}
	selected, err := selectControllers(controllers, o.Controllers)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, c := range selected {
		if c.Webhook != nil {
			names = append(names, c.webhookName())
		}
	}
	configuration, err := admission.Configuration(o.Webhook.ConfigurationName, names, o.Namespaces, "")
	if err != nil {
		return nil, err
	}
	for i := range configuration.Webhooks {
		service := configuration.Webhooks[i].ClientConfig.Service
		service.Namespace, service.Name = o.Webhook.ServiceNamespace, o.Webhook.ServiceName
	}
	return configuration, nil
}
