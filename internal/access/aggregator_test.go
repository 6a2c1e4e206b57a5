package access

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/internal/access/client"
	"github.com/keelson-dev/keelson/internal/pki"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func TestMain(m *testing.M) { env.Main(m) }

// newAggregated starts a server behind a real kube-apiserver, with one machine.
func newAggregated(b testing.TB) (*fixture, *rest.Config) {
	b.Helper()
	config := env.Own(b)
	f := &fixture{TB: b, m: newMachine()}
	c, err := kube.New(config, kube.Options{})
	f.do(err)
	f.do(c.Create(b.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ServiceNamespace}}))
	key, err := pki.NewKey()
	f.do(err)
	pair, err := pki.Template{
		CommonName: "test", Names: []string{ServerName}, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, Lifetime: time.Hour,
	}.Issue(key, pki.Pair{}, time.Now())
	f.do(err)
	bundle, err := cert.EncodeCertificates(pair.Certificate)
	f.do(err)
	f.server = NewServer(Options{Machines: f.m, Reader: c, Review: f.m.review, Usage: f.m.samples, Limits: DefaultLimits(), Log: logr.Discard()})
	f.http = httptest.NewUnstartedServer(f.server)
	f.http.TLS = &tls.Config{ //nolint:gosec // of a test
		ClientAuth: tls.RequestClientCert, NextProtos: []string{"http/1.1"}, Certificates: []tls.Certificate{*pair.TLS()},
	}
	f.http.StartTLS()
	b.Cleanup(func() {
		f.server.Close()
		f.http.Close()
	})
	port := f.http.Listener.Addr().(*net.TCPAddr).Port
	f.do((&Registration{Client: c, Live: c, Port: int32(port)}).Install(b.Context(), bundle)) //nolint:gosec // a port
	harness.Eventually(b, "kube-apiserver passes requests on", func() bool {
		log, err := client.ReadLog(b.Context(), config, "default", "web", 1, false)
		if err == nil {
			_ = log.Close()
		}
		return err == nil
	})
	return f, config
}

// Open consoles of users hold no seats of priority and fairness, which other requests need.
func TestOpenConsolesHoldNoSeats(t *testing.T) {
	f, config := newAggregated(t)
	api := kubernetes.NewForConfigOrDie(config)
	_, err := api.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "jane"}, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "jane"}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}, metav1.CreateOptions{})
	f.do(err)
	jane := rest.CopyConfig(config)
	jane.Impersonate.UserName = "jane"
	held := regexp.MustCompile(`(?m)^apiserver_flowcontrol_current_executing_seats\{flow_schema="([^"]*)".*\} [1-9]`)
	// kube-apiserver needs a moment for the role and the FlowSchema.
	harness.Eventually(t, "an open console holds no seat", func() bool {
		conn, err := client.Dial(t.Context(), jane, "default", "web", client.Console, nil)
		if err != nil {
			return false
		}
		defer conn.CloseNow() //nolint:errcheck // it has ended
		f.notice(conn)
		metrics, err := api.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
		f.do(err)
		for _, seat := range held.FindAllStringSubmatch(string(metrics), -1) {
			if seat[1] == "global-default" || seat[1] == "service-accounts" {
				return false
			}
		}
		return strings.Contains(string(metrics), `flow_schema="keelson-access"`)
	})
}

// BenchmarkAggregated measures the same through kube-apiserver.
func BenchmarkAggregated(b *testing.B) {
	f, config := newAggregated(b)
	for _, kind := range kinds {
		path, err := url.Parse(kind.path)
		f.do(err)
		open := func() (*websocket.Conn, net.Conn) {
			conn, err := client.Dial(b.Context(), config, "default", "web", path.Path, path.Query())
			f.do(err)
			b.Cleanup(func() { _ = conn.CloseNow() })
			return conn, kind.guest(f, conn)
		}
		b.Run(kind.name+"/latency", func(b *testing.B) {
			conn, guest := open()
			defer conn.CloseNow() //nolint:errcheck // it has ended
			go func() { _, _ = io.Copy(guest, guest) }()
			latency(b, f, conn)
		})
		b.Run(kind.name+"/throughput", func(b *testing.B) {
			conn, guest := open()
			defer conn.CloseNow() //nolint:errcheck // it has ended
			throughput(b, f, conn, guest)
		})
	}
}
