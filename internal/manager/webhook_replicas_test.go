package manager

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/internal/admission"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// Three replicas answer through one address, while their certificates are renewed again and again and the leader is
// stopped: no request fails.
func TestWebhookReplicas(t *testing.T) {
	c := newWebhookClient(t)
	namespace := env.Namespace(t)
	o := webhookOptions(t, c, namespace)
	o.LeaderElection.Enabled = ptr.To(true)
	o.LeaderElection.RetryPeriod = 100 * time.Millisecond
	o.Webhook.Times = admission.Times{Authority: 12 * time.Second, Serving: 6 * time.Second, Look: 100 * time.Millisecond, Overlap: 2 * time.Second}

	front := newBalancer(t)
	mustAnswer(t, c, o, front)
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
		expectRefusal(t, m.WebhookAddress()) // also one that may not write
		front.add(m.WebhookAddress())
	}
	awaitRefusal(t, c, namespace, true)

	authorities, serving := map[string]bool{}, map[string]bool{}
	stopped := false
	for began := time.Now(); len(authorities) < 3; {
		if time.Since(began) > harness.WaitTimeout {
			t.Fatalf("%d authorities in %v", len(authorities), harness.WaitTimeout)
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

// mustAnswer makes the webhook known to the API server as the installation does, but that a request is lost if nobody
// answers.
func mustAnswer(t *testing.T, c client.Client, o Options, front *balancer) {
	t.Helper()
	mustAnswerAt(t, c, o, front.address(), cronTabs)
}

// mustAnswerAt does so for these kinds, with an address.
func mustAnswerAt(t *testing.T, c client.Client, o Options, address string, kinds ...string) {
	t.Helper()
	configuration, err := admission.Configuration(o.Webhook.ConfigurationName, kinds, o.Namespaces, address)
	if err != nil {
		t.Fatal(err)
	}
	for i := range configuration.Webhooks {
		configuration.Webhooks[i].FailurePolicy = ptr.To(admissionregistrationv1.Fail)
	}
	if err := c.Create(t.Context(), configuration); err != nil {
		t.Fatal(err)
	}
}
