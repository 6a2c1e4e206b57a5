package manager

import (
	"net/http"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	clusterv1alpha1 "github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	samplev1 "github.com/keelson-dev/keelson/api/sample/v1"
	samplecontrollerv1alpha1 "github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	virtualmachinev1alpha1 "github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/config/rbac"
	"github.com/keelson-dev/keelson/internal/admission"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/controller/crontab"
	"github.com/keelson-dev/keelson/internal/controller/foo"
	"github.com/keelson-dev/keelson/internal/controller/kubeconfig"
	"github.com/keelson-dev/keelson/internal/controller/sampleresource"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine"
)

// Controller registers one controller with the manager.
type Controller struct {
	// Name is used in --controllers, logs, metrics and the name of the controller's role.
	Name string
	// Resources are the custom resources that the API server must serve.
	Resources []schema.GroupVersionResource
	// AddToScheme adds their Go types to a scheme.
	AddToScheme func(*runtime.Scheme) error
	// Permissions returns the RBAC rules that it needs, including those of the packages it calls.
	Permissions func() ([]rbacv1.PolicyRule, error)
	// NamespaceRules, if set, returns the additional rules that it needs in Options.SecretNamespace only, whichever
	// namespaces the manager watches.
	NamespaceRules func() ([]rbacv1.PolicyRule, error)
	// Add adds the controller to a manager.
	Add func(ctrl.Manager, controller.Options) error
	// AddWith replaces Add for a controller with its own options.
	AddWith func(ctrl.Manager, controller.Options, *Options) error
	// Webhook, if set, returns the admission webhook for the first resource. Kinds that the CRD validates
	// completely have none.
	Webhook func(hook) (http.Handler, error)
	// Cache, if set, changes the cache options of the manager: a transform or a selector for a type that the
	// controller watches.
	Cache func(*cache.Options)
}

// controllers lists all controllers. A new kind needs one entry.
var controllers = []Controller{
	{
		Name:        "foo",
		Resources:   []schema.GroupVersionResource{samplecontrollerv1alpha1.SchemeGroupVersion.WithResource("foos")},
		AddToScheme: samplecontrollerv1alpha1.AddToScheme,
		Permissions: permissionsOf("foo"),
		Add:         foo.Add,
		Cache:       foo.Cache,
	},
	{
		Name:        "sampleresource",
		Resources:   []schema.GroupVersionResource{samplev1.SchemeGroupVersion.WithResource("sampleresources")},
		AddToScheme: samplev1.AddToScheme,
		Permissions: permissionsOf("sampleresource"),
		Add:         sampleresource.Add,
		Cache:       sampleresource.Cache,
	},
	{
		Name:        crontab.Name,
		Resources:   []schema.GroupVersionResource{stablev1.SchemeGroupVersion.WithResource("crontabs")},
		AddToScheme: stablev1.AddToScheme,
		Permissions: permissionsOf(crontab.Name),
		AddWith:     addCronTab,
		Webhook:     validating(cronTabRules),
		Cache:       crontab.Cache,
	},
	{
		Name: cluster.Name,
		Resources: []schema.GroupVersionResource{
			clusterv1alpha1.SchemeGroupVersion.WithResource("clusters"), clusterv1alpha1.SchemeGroupVersion.WithResource("clustersnapshots"),
		},
		AddToScheme:    clusterv1alpha1.AddToScheme,
		Permissions:    permissionsOf(cluster.Name),
		NamespaceRules: namespaceRulesOf(cluster.Name),
		AddWith:        addCluster,
		Webhook:        validating(clusterRules),
	},
	{
		Name:           kubeconfig.Name,
		Resources:      []schema.GroupVersionResource{clusterv1alpha1.SchemeGroupVersion.WithResource("kubeconfigs")},
		AddToScheme:    clusterv1alpha1.AddToScheme,
		Permissions:    permissionsOf(kubeconfig.Name),
		NamespaceRules: namespaceRulesOf(kubeconfig.Name),
		AddWith: func(mgr ctrl.Manager, options controller.Options, o *Options) error {
			return kubeconfig.Add(mgr, options, kubeconfig.Options{SecretNamespace: o.SecretNamespace, ConfigDirs: o.RKEConfigDirs})
		},
		Webhook: validating(kubeconfigRules),
	},
	{
		Name: "virtualmachine",
		Resources: []schema.GroupVersionResource{
			virtualmachinev1alpha1.SchemeGroupVersion.WithResource("virtualmachines"),
			virtualmachinev1alpha1.SchemeGroupVersion.WithResource("virtualmachineimages"),
			virtualmachinev1alpha1.SchemeGroupVersion.WithResource("virtualdisks"),
			virtualmachinev1alpha1.SchemeGroupVersion.WithResource("virtualmachinesnapshots"),
			virtualmachinev1alpha1.SchemeGroupVersion.WithResource("virtualmachinesets"),
		},
		AddToScheme: virtualmachinev1alpha1.AddToScheme,
		Permissions: permissionsOf("virtualmachine"),
		AddWith:     addVirtualMachine,
		Webhook:     validating(virtualMachineRules),
		Cache:       virtualmachine.Cache,
	},
}

func (c Controller) add(mgr ctrl.Manager, o *Options) error {
	if c.AddWith != nil {
		return c.AddWith(mgr, controllerOptions(o.Threads), o)
	}
	return c.Add(mgr, controllerOptions(o.Threads))
}

// webhookName returns the name of the controller's webhook, which is also the name of the CRD.
func (c Controller) webhookName() string { return c.Resources[0].GroupResource().String() }

// hook contains the parameters of a controller's webhook.
type hook struct {
	*Options
	scheme *runtime.Scheme
	// path is the URL path of the handler.
	path string
	// dryRun is a client for dry-run writes.
	dryRun client.Writer
	// live reads from the API server.
	live client.Reader
}

// validating returns the handler that applies rules.
func validating[T client.Object](rules func(hook) admission.Rules[T]) func(hook) (http.Handler, error) {
	return func(h hook) (http.Handler, error) {
		return admission.Handler(h.scheme, rules(h), h.path, h.Logger.WithName("webhook"))
	}
}

// addCronTab adds the controller of CronTabs.
func addCronTab(mgr ctrl.Manager, options controller.Options, o *Options) error {
	networks, err := parseNetworks(o.PingNetworks)
	if err != nil {
		return err
	}
	return crontab.Add(mgr, options, networks)
}

// cronTabRules returns the validation of CronTabs: by the controller, and by a dry run of the Job.
func cronTabRules(h hook) admission.Rules[*stablev1.CronTab] {
	return admission.Rules[*stablev1.CronTab]{
		Errors: crontab.Validate, Changes: crontab.ValidateChange, Warnings: crontab.Warnings, Trial: crontab.NewTrial(h.dryRun, h.live, clock.RealClock{}),
	}
}

// Names returns the names of all controllers.
func Names() []string { return names(controllers) }

// permissionsOf reads the rules from the role that is generated from the markers in the controller's package.
func permissionsOf(name string) func() ([]rbacv1.PolicyRule, error) {
	return func() ([]rbacv1.PolicyRule, error) { return rbac.ForController(name) }
}

// namespaceRulesOf reads the rules that the markers limit to one namespace from the same role.
func namespaceRulesOf(name string) func() ([]rbacv1.PolicyRule, error) {
	return func() ([]rbacv1.PolicyRule, error) { return rbac.ForControllerInNamespace(name) }
}
