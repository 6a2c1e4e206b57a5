package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/admission"
	"github.com/keelson-dev/keelson/internal/driver/fake"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// backwards is a schedule that the definition lets through and internal/cron does not read.
const backwards = "30-10 * * * *"

func newCronTab(namespace, name, schedule string) *stablev1.CronTab {
	return &stablev1.CronTab{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: stablev1.CronTabSpec{
			Schedule: stablev1.Schedule(schedule),
			JobTemplate: &stablev1.JobTemplate{PodSpec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "busybox"}},
			}},
		},
	}
}

// webhookOptions are options for a manager of CronTabs and VirtualMachines in one namespace, with a webhook for that
// namespace alone: other tests use the same API server.
func webhookOptions(t *testing.T, c client.Client, namespace string) Options {
	t.Helper()
	o := newTestOptions(t, namespace)
	o.Controllers = []string{"crontab", "virtualmachine"}
	o.Machines.Drivers, o.StateDir = []string{fake.Name}, t.TempDir()
	o.HealthAddress, o.MetricsAddress = "127.0.0.1:0", Off
	o.Webhook.Address, o.Webhook.ConfigurationName = "127.0.0.1:0", "keelson-"+namespace
	o.Webhook.ServiceNamespace = namespace
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: o.Webhook.ConfigurationName}}
		if err := client.IgnoreNotFound(c.Delete(ctx, configuration)); err != nil {
			t.Errorf("delete the configuration: %v", err)
		}
	})
	return o
}

// newWebhookClient returns the administrator's client for all our kinds.
func newWebhookClient(t *testing.T) client.Client {
	t.Helper()
	return newWebhookClientOf(t, env.Config(t))
}

func newWebhookClientOf(t *testing.T, cfg *rest.Config) client.Client {
	t.Helper()
	scheme, err := newScheme(controllers)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Every webhook has a handler, and every handler a webhook, which is reached by the Service that the options name.
func TestWebhookConfiguration(t *testing.T) {
	var want []string
	for _, c := range controllers {
		if c.Webhook != nil {
			want = append(want, "team/hook"+admission.Path(c.webhookName()))
		}
	}
	o := NewOptions()
	o.Webhook.ServiceNamespace, o.Webhook.ServiceName = "team", "hook"
	configuration, err := WebhookConfiguration(o)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range configuration.Webhooks {
		service := w.ClientConfig.Service
		got = append(got, service.Namespace+"/"+service.Name+*service.Path)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" || len(got) == 0 {
		t.Errorf("webhooks (-want +got):\n%s", diff)
	}
	o.Controllers = []string{"foo", "crontab"}
	if configuration, err = WebhookConfiguration(o); err != nil || len(configuration.Webhooks) != 1 {
		t.Errorf("for Foo, which has none, and CronTab: %d webhooks, %v", len(configuration.Webhooks), err)
	}
}

// The manager may change one Secret and one configuration, and no others.
func TestWebhookPermissions(t *testing.T) {
	o := NewOptions()
	o.Webhook.Address, o.Webhook.ServiceNamespace = ":9443", "team"
	var got []string
	for _, r := range o.Webhook.requirements() {
		for _, p := range r.Permissions(func(resource schema.GroupResource) bool { return resource.Resource != "secrets" }) {
			got = append(got, p.String())
		}
	}
	want := []string{
		`get validatingwebhookconfigurations.admissionregistration.k8s.io "keelson"`,
		`update validatingwebhookconfigurations.admissionregistration.k8s.io "keelson"`,
		`create secrets in namespace team`,
		`get secrets "keelson-webhook-ca" in namespace team`,
		`update secrets "keelson-webhook-ca" in namespace team`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("permissions (-want +got):\n%s", diff)
	}
	o.Webhook.CertDir = "/certs"
	if all := o.Webhook.requirements(); len(all) > 0 {
		t.Errorf("with certificates of somebody else it needs %v", all)
	}
}

// awaitRefusal waits until the API server asks the webhook, or, with refused false, until it does not any more.
func awaitRefusal(t *testing.T, c client.Client, namespace string, refused bool) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("the API server refuses: %v", refused), func() bool {
		err := c.Create(t.Context(), newCronTab(namespace, "probe", backwards), client.DryRunAll)
		return apierrors.IsInvalid(err) == refused
	})
}

// startAsked starts a manager that the API server asks about objects in a namespace.
func startAsked(t *testing.T, c client.Client, namespace string) (Options, *running) {
	t.Helper()
	o := webhookOptions(t, c, namespace)
	o.Webhook.Direct = true
	m := start(t, o, controllers...)
	within(t, "the manager to be ready", m.Ready())
	awaitRefusal(t, c, namespace, true)
	return o, m
}

// newAsked returns an API server and what a manager needs that it asks about objects of all kinds. Of some kinds the objects
// have no namespace that tells them from those of other tests, so it is for one test alone.
func newAsked(t *testing.T) (*rest.Config, client.Client, Options) {
	t.Helper()
	cfg := env.Own(t)
	env.Define(t, cfg)
	c := newWebhookClientOf(t, cfg)
	o := webhookOptions(t, c, metav1.NamespaceDefault)
	o.Namespaces, o.Webhook.Direct = nil, true
	o.Controllers = []string{"crontab", "virtualmachine", "cluster", "kubeconfig"}
	return cfg, c, o
}

func TestWebhookRefuses(t *testing.T) {
	const namespace = metav1.NamespaceDefault
	cfg, c, o := newAsked(t)
	within(t, "the manager to be ready", startWith(t, cfg, o, controllers...).Ready())
	awaitRefusal(t, c, namespace, true)

	machine := func(spec v1alpha1.VirtualMachineSpec) client.Object {
		return &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "it"}, Spec: spec}
	}
	cronTab := func(change func(*stablev1.CronTab)) client.Object {
		object := newCronTab(namespace, "it", "@daily")
		change(object)
		return object
	}
	cluster := func(spec clusterv1alpha1.ClusterSpec) client.Object {
		return &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "it"}, Spec: spec}
	}
	kubeconfig := func(spec clusterv1alpha1.KubeconfigSpec) client.Object {
		return &clusterv1alpha1.Kubeconfig{ObjectMeta: metav1.ObjectMeta{Name: "it"}, Spec: spec}
	}
	const outside = "it is in none of the directories that users may name files in; clusters.rkeConfigDirs "
	for _, test := range []struct {
		name   string
		object client.Object
		// causes are those of the refusal, none if there is none; a cause that ends in "..." is the beginning of one.
		causes []string
	}{
		{"a CronTab", cronTab(func(*stablev1.CronTab) {}), nil},
		{"a range that runs backwards", cronTab(func(o *stablev1.CronTab) { o.Spec.Schedule = "0 9 * * 5,4-2" }), []string{
			`spec.schedule: Invalid value: "0 9 * * 5,4-2": day of week "4-2", character 11: the range runs backwards; write the smaller value first, or two ranges: 4-6,0-2`,
		}},
		{"mistakes in two of three schedules", cronTab(func(o *stablev1.CronTab) {
			o.Spec.Schedule, o.Spec.Schedules = "", []stablev1.Schedule{"H/61 * * * *", "@daily", "@every 1500ms"}
		}), []string{
			`spec.schedules[0]: Invalid value: "H/61 * * * *": minute "H/61", character 1: ...`,
			`spec.schedules[2]: Invalid value: "@every 1500ms": duration "1500ms", character 8: must be a single duration of whole seconds, at least 1s, such as "90s" or "1h30m"`,
		}},
		{"a machine", machine(v1alpha1.VirtualMachineSpec{}), nil},
		{"a driver that the manager was not started with", machine(v1alpha1.VirtualMachineSpec{Driver: "qemu"}), []string{
			`spec.driver: Invalid value: "qemu": this manager was started with --vm-driver=fake and without qemu; add it there`,
		}},
		{"what the driver cannot do", machine(v1alpha1.VirtualMachineSpec{Image: &v1alpha1.Image{Container: "debian:13"}}), []string{
			`spec.image.container: Invalid value: "debian:13": the driver fake runs no containers`,
		}},
		{"a Cluster", cluster(clusterv1alpha1.ClusterSpec{}), nil},
		{"a file for rke", cluster(clusterv1alpha1.ClusterSpec{ConfigPath: "/etc/keelson/rke/cluster.yml"}), nil},
		{"a file for rke elsewhere", cluster(clusterv1alpha1.ClusterSpec{ConfigPath: "/etc/passwd"}), []string{
			`spec.configPath: Forbidden: /etc/passwd: ` + outside + `allows: /etc/keelson/rke`,
		}},
		{"the same, as the original had it", cluster(clusterv1alpha1.ClusterSpec{LegacyConfigPath: "/etc/passwd"}), []string{
			`spec.configPath: Forbidden: /etc/passwd: ` + outside + `allows: /etc/keelson/rke`,
		}},
		{"a Kubeconfig", kubeconfig(clusterv1alpha1.KubeconfigSpec{
			SecretRef: &clusterv1alpha1.SecretReference{Namespace: namespace, Name: "a"},
		}), nil},
		{"a Secret elsewhere", kubeconfig(clusterv1alpha1.KubeconfigSpec{
			SecretRef: &clusterv1alpha1.SecretReference{Namespace: "kube-system", Name: "a"},
		}), []string{
			`spec.secretRef.namespace: Invalid value: "kube-system": this manager may read Secrets in the namespace default only`,
		}},
		{"a kubeconfig elsewhere", kubeconfig(clusterv1alpha1.KubeconfigSpec{ConfigPath: "/etc/kubernetes/admin.conf"}), []string{
			`spec.configPath: Invalid value: "/etc/kubernetes/admin.conf": ` + outside + `of the manager allows: /etc/keelson/rke`,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := triedCauses(t, c, test.object, len(test.causes) > 0)
			for i := range min(len(got), len(test.causes)) {
				if beginning, cut := strings.CutSuffix(test.causes[i], "..."); cut && strings.HasPrefix(got[i], beginning) {
					got[i] = test.causes[i]
				}
			}
			if diff := cmp.Diff(test.causes, got); diff != "" {
				t.Errorf("the refusal (-want +got):\n%s", diff)
			}
		})
	}
}

// triedCauses creates an object in a dry run, and returns what is wrong with it. If it should be refused and is not, that is tried again: an
// API server waits two seconds for the webhook, which a busy host may need longer for.
func triedCauses(t *testing.T, c client.Client, object client.Object, refused bool) []string {
	t.Helper()
	var err error
	harness.Eventually(t, fmt.Sprintf("it is refused: %t", refused), func() bool {
		err = c.Create(t.Context(), object.DeepCopyObject().(client.Object), client.DryRunAll)
		return apierrors.IsInvalid(err) || err == nil && !refused
	})
	if err == nil {
		return nil
	}
	return causesOf(t, err)
}

// causesOf returns what is wrong with an object that was refused.
func causesOf(t *testing.T, err error) []string {
	t.Helper()
	var status *apierrors.StatusError
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) || status.ErrStatus.Details == nil {
		t.Fatalf("got %v, want a refusal with its causes", err)
	}
	var all []string
	for _, cause := range status.ErrStatus.Details.Causes {
		all = append(all, cause.Field+": "+cause.Message)
	}
	return all
}
