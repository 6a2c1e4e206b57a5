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

// Controller is what the manager knows of one controller.
type Controller struct {
	// Name is how --controllers, logs, metrics and the role of the controller call
	// it.
	Name string
	// Resources are the custom resources that it needs to be served.
	Resources []schema.GroupVersionResource
	// AddToScheme adds the Go types of those to a scheme.
	AddToScheme func(*runtime.Scheme) error
	// Permissions returns what it needs from the API, with everything it calls
	// counted.
	Permissions func() ([]rbacv1.PolicyRule, error)
	// AtHome, if set, returns what it needs beyond that in Options.SecretNamespace
	// alone, whatever namespaces the manager works in.
	AtHome func() ([]rbacv1.PolicyRule, error)
	// Add builds it and adds it to a manager, with these options.
	Add func(ctrl.Manager, controller.Options) error
	// AddWith takes the place of Add for a controller that has options of its own.
	AddWith func(ctrl.Manager, controller.Options, *Options) error
	// Webhook, if set, returns what answers the API server that asks before it stores an object of the first resource.
	// Kinds of which the definition says everything have none.
	Webhook func(hook) (http.Handler, error)
	// Cache, if set, adds what the controller needs to the options of the manager's
	// cache: a transform or a selector for a type that it watches.
	Cache func(*cache.Options)
}

// controllers is the one list of controllers. A new kind is one entry here.
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
		Add:         crontab.Add,
		Webhook:     validating(cronTabRules),
		Cache:       crontab.Cache,
	},
	{
		Name:        cluster.Name,
		Resources:   []schema.GroupVersionResource{clusterv1alpha1.SchemeGroupVersion.WithResource("clusters")},
		AddToScheme: clusterv1alpha1.AddToScheme,
		Permissions: permissionsOf(cluster.Name),
		AtHome:      atHomeOf(cluster.Name),
		AddWith:     addCluster,
		Webhook:     validating(clusterRules),
	},
	{
		Name:        kubeconfig.Name,
		Resources:   []schema.GroupVersionResource{clusterv1alpha1.SchemeGroupVersion.WithResource("kubeconfigs")},
		AddToScheme: clusterv1alpha1.AddToScheme,
		Permissions: permissionsOf(kubeconfig.Name),
		AtHome:      atHomeOf(kubeconfig.Name),
		AddWith: func(mgr ctrl.Manager, options controller.Options, o *Options) error {
			return kubeconfig.Add(mgr, options, kubeconfig.Options{SecretNamespace: o.SecretNamespace, ConfigDirs: o.RKEConfigDirs})
		},
		Webhook: validating(kubeconfigRules),
	},
	{
		Name:        "virtualmachine",
		Resources:   []schema.GroupVersionResource{virtualmachinev1alpha1.SchemeGroupVersion.WithResource("virtualmachines")},
		AddToScheme: virtualmachinev1alpha1.AddToScheme,
		Permissions: permissionsOf("virtualmachine"),
		AddWith:     addVirtualMachine,
		Webhook:     validating(virtualMachineRules),
		Cache:       virtualmachine.Cache,
	},
}

// add adds the controller to a manager with these options.
func (c Controller) add(mgr ctrl.Manager, o *Options) error {
	if c.AddWith != nil {
		return c.AddWith(mgr, controllerOptions(o.Threads), o)
	}
	return c.Add(mgr, controllerOptions(o.Threads))
}

// webhookName is that of the webhook of a controller, and of the definition of the kind.
func (c Controller) webhookName() string { return c.Resources[0].GroupResource().String() }

// hook is what the webhook of a controller is made of.
type hook struct {
	*Options
	scheme *runtime.Scheme
	// path is where the handler is.
	path string
	// dryRun asks the API server what it would say of writes. It stores nothing.
	dryRun client.Writer
}

// validating makes a handler of rules.
func validating[T client.Object](rules func(hook) admission.Rules[T]) func(hook) (http.Handler, error) {
	return func(h hook) (http.Handler, error) {
		return admission.Handler(h.scheme, rules(h), h.path, h.Logger.WithName("webhook"))
	}
}

// cronTabRules are the rules for CronTabs: those of its controller, and those of the API server for its Jobs.
func cronTabRules(h hook) admission.Rules[*stablev1.CronTab] {
	return admission.Rules[*stablev1.CronTab]{
		Errors: crontab.Validate, Warnings: crontab.Warnings, Trial: crontab.NewTrial(h.dryRun, clock.RealClock{}),
	}
}

// Names returns the names of all controllers.
func Names() []string { return names(controllers) }

// permissionsOf reads them from the role that is generated from the markers in the
// controller's package.
func permissionsOf(name string) func() ([]rbacv1.PolicyRule, error) {
	return func() ([]rbacv1.PolicyRule, error) { return rbac.ForController(name) }
}

// atHomeOf reads from the same role what the markers limit to one namespace.
func atHomeOf(name string) func() ([]rbacv1.PolicyRule, error) {
	return func() ([]rbacv1.PolicyRule, error) { return rbac.ForControllerAtHome(name) }
}
