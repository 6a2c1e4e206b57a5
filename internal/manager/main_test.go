package manager

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	samplecontrollerv1alpha1 "github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	"github.com/keelson-dev/keelson/internal/graceful"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/tracing"
)

func TestMain(m *testing.M) {
	// Every five minutes is too rare for a test of a certificate that is renewed.
	transport.CertCallbackRefreshDuration = time.Second
	env.Main(m)
}

// foos are what the controllers of these tests watch.
var foos = samplecontrollerv1alpha1.SchemeGroupVersion.WithResource("foos")

// newTestController returns a controller of Foos that does what reconcile does.
func newTestController(name string, reconcile func(client.Client) reconcile.Func) Controller {
	return Controller{
		Name:        name,
		Resources:   []schema.GroupVersionResource{foos},
		AddToScheme: samplecontrollerv1alpha1.AddToScheme,
		Permissions: func() ([]rbacv1.PolicyRule, error) {
			return []rbacv1.PolicyRule{
				{APIGroups: []string{foos.Group}, Resources: []string{"foos"}, Verbs: []string{"get", "list", "watch"}},
				{APIGroups: []string{foos.Group}, Resources: []string{"foos/status"}, Verbs: []string{"patch", "update"}},
			}, nil
		},
		Add: func(m ctrl.Manager, options controller.Options) error {
			return ctrl.NewControllerManagedBy(m).Named(name).For(&samplecontrollerv1alpha1.Foo{}).
				WithOptions(options).Complete(tracing.Reconciler(name, graceful.Reconciler(reconcile(m.GetClient()))))
		},
	}
}

// idle is a controller that does nothing.
func idle(name string) Controller {
	return newTestController(name, func(client.Client) reconcile.Func {
		return func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil }
	})
}

// newTestOptions returns options for a manager in one namespace that takes no fixed
// port and no part in an election.
func newTestOptions(t *testing.T, namespace string) Options {
	t.Helper()
	o := NewOptions()
	o.Namespaces = []string{namespace}
	o.HealthAddress, o.MetricsAddress = "127.0.0.1:0", "127.0.0.1:0"
	o.LeaderElection.Enabled = ptr.To(false)
	o.LeaderElection.LockNamespace, o.SecretNamespace = namespace, namespace
	o.Logger = newTestLogger(t)
	return o
}

func newTestLogger(t *testing.T) logr.Logger {
	return testr.NewWithInterface(ended{t}, testr.Options{})
}

// ended drops what is logged after the end of a test: libraries have goroutines that
// outlive a manager for a moment, and testing panics at their words.
type ended struct{ *testing.T }

func (e ended) Log(args ...any) {
	if e.Context().Err() == nil {
		e.T.Log(args...)
	}
}

// newTestClient returns the administrator's client.
func newTestClient(t *testing.T, cfg *rest.Config) client.Client {
	t.Helper()
	scheme, err := newScheme([]Controller{newTestController("scheme", nil)})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatalf("build a client: %v", err)
	}
	return c
}
