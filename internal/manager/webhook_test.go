package manager

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	scheme, err := newScheme(controllers)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(env.Config(t), client.Options{Scheme: scheme})
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
		for _, p := range r.permissions(func(resource schema.GroupResource) bool { return resource.Resource != "secrets" }) {
			got = append(got, p.namespace+": "+p.verb+" "+p.target())
		}
	}
	want := []string{
		`: get validatingwebhookconfigurations.admissionregistration.k8s.io "keelson"`,
		`: update validatingwebhookconfigurations.admissionregistration.k8s.io "keelson"`,
		`team: create secrets`,
		`team: get secrets "keelson-webhook-ca"`,
		`team: update secrets "keelson-webhook-ca"`,
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

func TestWebhookRefuses(t *testing.T) {
	c := newWebhookClient(t)
	namespace := env.Namespace(t)
	o := webhookOptions(t, c, namespace)
	o.Webhook.Direct = true
	m := start(t, o, controllers...)
	within(t, "the manager to be ready", m.Ready())
	awaitRefusal(t, c, namespace, true)

	machine := func(spec v1alpha1.VirtualMachineSpec) client.Object {
		return &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "it"}, Spec: spec}
	}
	cronTab := func(change func(*stablev1.CronTab)) client.Object {
		object := newCronTab(namespace, "it", "@daily")
		change(object)
		return object
	}
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
			`spec.schedules[2]: Invalid value: "@every 1500ms": duration "1500ms", character 8: must be one duration of whole seconds, 1s at least, such as "90s" or "1h30m"`,
		}},
		{"a run at no time", cronTab(func(o *stablev1.CronTab) {
			o.Annotations = map[string]string{stablev1.RunRequestedAtAnnotation: "now"}
		}), []string{
			`metadata.annotations[crontab.stable.example.com/run-requested-at]: Invalid value: "now": must be a time in RFC 3339, such as 2026-12-24T18:00:00Z`,
		}},
		{"a machine", machine(v1alpha1.VirtualMachineSpec{}), nil},
		{"a driver that the manager was not started with", machine(v1alpha1.VirtualMachineSpec{Driver: "qemu"}), []string{
			`spec.driver: Invalid value: "qemu": this manager was started with --vm-driver=fake and without qemu; add it there`,
		}},
		{"what the driver cannot do", machine(v1alpha1.VirtualMachineSpec{Image: &v1alpha1.Image{Container: "debian:13"}}), []string{
			`spec.image.container: Invalid value: "debian:13": the driver fake runs no containers`,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			if err := c.Create(t.Context(), test.object, client.DryRunAll); err != nil {
				got = causesOf(t, err)
			}
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

// What is stored while nobody can be asked is said in conditions, and stays manageable: metadata, finalizers, status and
// deletions are nobody's business but the API server's.
func TestWebhookAway(t *testing.T) {
	c := newWebhookClient(t)
	namespace := env.Namespace(t)
	o := webhookOptions(t, c, namespace)
	o.Webhook.Direct = true
	m := start(t, o, controllers...)
	within(t, "the manager to be ready", m.Ready())
	awaitRefusal(t, c, namespace, true)
	m.stop()
	if err := within(t, "the manager to stop", m.result); err != nil {
		t.Fatal(err)
	}
	awaitRefusal(t, c, namespace, false)

	began := time.Now()
	bad := newCronTab(namespace, "bad", backwards)
	lost := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "lost"}, Spec: v1alpha1.VirtualMachineSpec{Driver: "bhyve"}}
	for _, object := range []client.Object{bad, lost} {
		object.SetFinalizers([]string{"example.com/test"})
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatalf("while the manager is away: %v", err)
		}
	}
	t.Logf("two objects were created in %v while the manager was away", time.Since(began))

	// Another manager, at another port, with another authority.
	m = start(t, o, controllers...)
	within(t, "the manager to be ready", m.Ready())
	awaitRefusal(t, c, namespace, true)
	for object, want := range map[client.Object]string{bad: stablev1.ReasonInvalidSchedule, lost: v1alpha1.ReasonDriverMissing} {
		harness.Eventually(t, "the condition says "+want, func() bool { return readyReason(t, c, object) == want })
	}
	patch := func(object client.Object, patch string) error {
		return c.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch)))
	}
	for _, object := range []client.Object{bad, lost} {
		if err := patch(object, `{"metadata":{"labels":{"a":"b"}}}`); err != nil {
			t.Errorf("a label: %v", err)
		}
		if err := patch(object, `{"metadata":{"finalizers":["example.com/test","example.com/other"]}}`); err != nil {
			t.Errorf("a finalizer: %v", err)
		}
	}
	if err := patch(bad, `{"spec":{"suspend":true}}`); err != nil {
		t.Errorf("it cannot be suspended: %v", err)
	}
	if err := patch(lost, `{"spec":{"action":"stopped"}}`); err != nil {
		t.Errorf("it cannot be stopped: %v", err)
	}
	if err := patch(bad, `{"spec":{"schedule":"31-10 * * * *"}}`); !apierrors.IsInvalid(err) {
		t.Errorf("another mistake: got %v, want a refusal", err)
	}
	for _, object := range []client.Object{bad, lost} {
		if err := c.Delete(t.Context(), object); err != nil {
			t.Errorf("a deletion: %v", err)
		}
		if err := patch(object, `{"metadata":{"finalizers":null}}`); err != nil {
			t.Errorf("its finalizers: %v", err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
			t.Errorf("it is still there: %v", err)
		}
	}
}

// readyReason returns the reason of the condition Ready of an object.
func readyReason(t *testing.T, c client.Client, object client.Object) string {
	t.Helper()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatal(err)
	}
	var conditions []metav1.Condition
	switch object := object.(type) {
	case *stablev1.CronTab:
		conditions = object.Status.Conditions
	case *v1alpha1.VirtualMachine:
		conditions = object.Status.Conditions
	}
	if ready := meta.FindStatusCondition(conditions, "Ready"); ready != nil {
		return ready.Reason
	}
	return ""
}

// Three replicas answer through one address, while their certificates are renewed again and again and the leader is
// stopped: no request fails.
func TestWebhookReplicas(t *testing.T) {
	c := newWebhookClient(t)
	namespace := env.Namespace(t)
	o := webhookOptions(t, c, namespace)
	o.LeaderElection.Enabled = ptr.To(true)
	o.LeaderElection.RetryPeriod = 100 * time.Millisecond
	o.Webhook.Times = admission.Times{Authority: 6 * time.Second, Serving: 3 * time.Second, Look: 100 * time.Millisecond, Overlap: time.Second}

	front := newBalancer(t)
	// As the installation makes it, but that a request is lost if nobody answers.
	configuration, err := admission.Configuration(o.Webhook.ConfigurationName, []string{"crontabs.stable.example.com"}, o.Namespaces, front.address())
	if err != nil {
		t.Fatal(err)
	}
	configuration.Webhooks[0].FailurePolicy = ptr.To(admissionregistrationv1.Fail)
	if err := c.Create(t.Context(), configuration); err != nil {
		t.Fatal(err)
	}
	var replicas []*running
	for i := range 3 {
		o.LeaderElection.Identity = fmt.Sprintf("replica-%d", i)
		m := start(t, o, controllers...)
		replicas = append(replicas, m)
		if i == 0 {
			within(t, "the first replica to lead", m.Ready())
		}
	}
	for _, m := range replicas {
		harness.Eventually(t, "a replica is ready", func() bool { code, _ := get(t, m.HealthAddress(), "/readyz"); return code == 200 })
		front.add(m.WebhookAddress())
	}
	awaitRefusal(t, c, namespace, true)

	authorities, serving := map[string]bool{}, map[string]bool{}
	stopped := false
	for began := time.Now(); len(authorities) < 3; {
		if time.Since(began) > harness.Patience {
			t.Fatalf("%d authorities in %v", len(authorities), harness.Patience)
		}
		err := c.Create(t.Context(), newCronTab(namespace, "probe", backwards), client.DryRunAll)
		if !apierrors.IsInvalid(err) {
			t.Fatalf("after %v: got %v, want a refusal", time.Since(began), err)
		}
		var secret corev1.Secret
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: admission.SecretName}, &secret); err != nil {
			t.Fatal(err)
		}
		authorities[strings.SplitAfter(string(secret.Data["ca.crt"]), "END CERTIFICATE")[0]] = true
		for _, m := range replicas {
			serving[verifyReplica(t, c, m.WebhookAddress(), o.Webhook)] = true
		}
		if len(authorities) == 2 && !stopped {
			stopped = true
			front.remove(replicas[0].WebhookAddress())
			replicas[0].stop()
			if err := within(t, "the leader to stop", replicas[0].result); err != nil {
				t.Fatal(err)
			}
			replicas = replicas[1:]
		}
	}
	t.Logf("%d serving certificates of %d authorities", len(serving), len(authorities))
}

// verifyReplica connects to a replica as the API server does, with the present caBundle and the name of the Service. It
// returns the serial number of its certificate.
func verifyReplica(t *testing.T, c client.Client, address string, w Webhook) string {
	t.Helper()
	var configuration admissionregistrationv1.ValidatingWebhookConfiguration
	if err := c.Get(t.Context(), client.ObjectKey{Name: w.ConfigurationName}, &configuration); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(configuration.Webhooks[0].ClientConfig.CABundle)
	connection, err := tls.Dial("tcp", address, &tls.Config{RootCAs: roots, ServerName: w.ServiceName + "." + w.ServiceNamespace + ".svc"})
	if err != nil {
		t.Fatalf("a replica is not trusted: %v", err)
	}
	defer connection.Close() //nolint:errcheck // nothing was sent
	return connection.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// balancer forwards connections to replicas in turns, as a Service does.
type balancer struct {
	listener net.Listener
	mu       sync.Mutex
	backends []string
	turn     int
}

func newBalancer(t *testing.T) *balancer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{listener: listener}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go b.forward(connection)
		}
	}()
	return b
}

func (b *balancer) address() string { return b.listener.Addr().String() }

func (b *balancer) add(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends = append(b.backends, address)
}

func (b *balancer) remove(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends = slices.DeleteFunc(b.backends, func(other string) bool { return other == address })
}

func (b *balancer) forward(connection net.Conn) {
	defer connection.Close() //nolint:errcheck // it may be closed
	b.mu.Lock()
	if len(b.backends) == 0 {
		b.mu.Unlock()
		return
	}
	b.turn++
	backend := b.backends[b.turn%len(b.backends)]
	b.mu.Unlock()
	onward, err := net.Dial("tcp", backend)
	if err != nil {
		return
	}
	defer onward.Close() //nolint:errcheck // it may be closed
	go func() {
		_, _ = io.Copy(onward, connection)
		_ = onward.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(connection, onward)
}

// With a directory of somebody else's certificates the manager neither makes any nor writes caBundle, and takes those that
// replace them.
func TestWebhookWithCertificatesOfSomebodyElse(t *testing.T) {
	c := newWebhookClient(t)
	namespace := env.Namespace(t)
	o := webhookOptions(t, c, namespace)
	o.Webhook.CertDir = t.TempDir()
	first := writeCertificate(t, o.Webhook.CertDir)
	m := start(t, o, controllers...)
	within(t, "the manager to be ready", m.Ready())
	serves := func() string {
		connection, err := tls.Dial("tcp", m.WebhookAddress(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close() //nolint:errcheck // nothing was sent
		return connection.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	if got := serves(); got != first {
		t.Errorf("it serves the certificate %s, want %s", got, first)
	}
	second := writeCertificate(t, o.Webhook.CertDir)
	harness.Eventually(t, "it serves the other certificate", func() bool { return serves() == second })
	err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: admission.SecretName}, &corev1.Secret{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("there is a Secret of its own: %v", err)
	}
}

// writeCertificate writes tls.crt and tls.key to a directory and returns the serial number.
func writeCertificate(t *testing.T, dir string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), NotAfter: time.Now().Add(time.Hour)}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	rawKey, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: raw}, "tls.key": {Type: "PRIVATE KEY", Bytes: rawKey}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return template.SerialNumber.String()
}
