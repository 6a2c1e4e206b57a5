package manager

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/config/rbac"
	"github.com/keelson-dev/keelson/internal/manager/serving"
	"github.com/keelson-dev/keelson/internal/pki"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// account makes a service account that has these roles, and returns a token of it. With what the manager itself needs
// for it, an account can also be the manager.
func account(t *testing.T, namespace, name string, roles ...*rbacv1.ClusterRole) string {
	t.Helper()
	clients, err := kubernetes.NewForConfig(env.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	made := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	if _, err := clients.CoreV1().ServiceAccounts(namespace).Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create the service account %s: %v", name, err)
	}
	for _, role := range roles {
		role = role.DeepCopy()
		role.Name = namespace + "-" + name + "-" + role.Name // they have no namespace, and tests share the server
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
		}
		if _, err := clients.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
			t.Fatalf("create the role %s: %v", role.Name, err)
		}
		if _, err := clients.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatalf("bind the role %s: %v", role.Name, err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), soon)
			defer cancel()
			_ = clients.RbacV1().ClusterRoleBindings().Delete(ctx, role.Name, metav1.DeleteOptions{})
			_ = clients.RbacV1().ClusterRoles().Delete(ctx, role.Name, metav1.DeleteOptions{})
		})
	}
	token, err := clients.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](600)}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("make a token for %s: %v", name, err)
	}
	return token.Status.Token
}

// reader asks for metrics over TLS, and believes any certificate.
type reader struct{ *http.Client }

func newReader(t *testing.T, trusted *x509.CertPool) reader {
	config := &tls.Config{RootCAs: trusted, InsecureSkipVerify: trusted == nil} //nolint:gosec // it signs itself
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	return reader{&http.Client{Transport: transport}}
}

func (r reader) get(t *testing.T, address, path, token string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := r.Do(request)
	if err != nil {
		t.Fatalf("get %s: %v", path, err)
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
	return response.StatusCode, string(body)
}

// Metrics that others than this host can reach are for those whom the API server lets get them. The manager needs no more
// for that than its role for it says, also while another one leads.
func TestSecureMetrics(t *testing.T) {
	metricsReader, err := rbac.MetricsReader()
	if err != nil {
		t.Fatal(err)
	}
	namespace := env.Namespace(t)
	profiler := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "profiler"},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"/debug/pprof/*"}, Verbs: []string{"get"}}},
	}
	permitted := account(t, namespace, "reader", metricsReader)
	profiling := account(t, namespace, "profiler", profiler)
	stranger := account(t, namespace, "stranger")

	o := newTestOptions(t, namespace)
	o.Serving = serving.Options{Secure: ptr.To(true), Profiling: true}
	o.LeaderElection.Enabled = ptr.To(true)
	first := start(t, o, idle("leader"))
	within(t, "the first to lead", first.Ready())

	cfg := rest.AnonymousClientConfig(env.Config(t))
	cfg.BearerToken = account(t, namespace, "manager", managerRole(t, o))
	standby := startWith(t, cfg, o, idle("standby"))
	within(t, "the standby to fill its caches", standby.readiness.synced)

	https := newReader(t, nil)
	for _, replica := range []struct {
		name string
		*running
	}{{"the leader", first}, {"the standby", standby}} {
		tests := []struct {
			name, path, token string
			want              int
		}{
			{"nobody", "/metrics", "", http.StatusUnauthorized},
			{"a token that is none", "/metrics", "made-up", http.StatusUnauthorized},
			{"an account without the role", "/metrics", stranger, http.StatusForbidden},
			{"an account with the role", "/metrics", permitted, http.StatusOK},
			{"profiles with the role for metrics", "/debug/pprof/heap", permitted, http.StatusForbidden},
			{"profiles with theirs", "/debug/pprof/heap", profiling, http.StatusOK},
			{"what there is not", "/", stranger, http.StatusForbidden},
		}
		for _, tt := range tests {
			t.Run(replica.name+", "+tt.name, func(t *testing.T) {
				code, body := https.get(t, replica.MetricsAddress(), tt.path, tt.token)
				if code != tt.want {
					t.Errorf("got %d, want %d: %s", code, tt.want, body)
				}
				if tt.want != http.StatusOK && strings.Contains(body, "keelson_build_info") {
					t.Error("the metrics are told all the same")
				}
			})
		}
	}
	// Plain HTTP at that port tells nothing.
	if code, body := get(t, first.MetricsAddress(), "/metrics"); code != http.StatusBadRequest || strings.Contains(body, "keelson") {
		t.Errorf("plain HTTP: got %d, %s", code, body)
	}
}

// managerRole returns what a manager with these options and a controller of tests needs.
func managerRole(t *testing.T, o Options) *rbacv1.ClusterRole {
	t.Helper()
	all := []Controller{idle("manager")}
	if err := prepare(&o, all); err != nil {
		t.Fatal(err)
	}
	needed, err := requirements(o, all)
	if err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
	owners := map[string]bool{}
	for _, r := range needed {
		owners[r.Owner] = true
		role.Rules = append(role.Rules, r.Rules...)
	}
	if !owners["secure metrics"] {
		t.Errorf("the requirements have nothing for secure metrics: %v", owners)
	}
	return role
}

func TestPlainMetrics(t *testing.T) {
	o := newTestOptions(t, env.Namespace(t))
	o.Serving.Profiling = true
	m := start(t, o, idle("plain"))
	within(t, "the manager to be ready", m.Ready())
	for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/goroutine", "/debug/pprof/cmdline"} {
		if code, body := get(t, m.MetricsAddress(), path); code != http.StatusOK {
			t.Errorf("%s on loopback: got %d, %s", path, code, body)
		}
	}
	without := newTestOptions(t, o.Namespaces[0])
	other := start(t, without, idle("no-profiles"))
	within(t, "the manager to be ready", other.Ready())
	if code, _ := get(t, other.MetricsAddress(), "/debug/pprof/"); code != http.StatusNotFound {
		t.Errorf("profiles that nobody has asked for: got %d", code)
	}
}

// Certificates from a folder are used as they are at the moment.
func TestMetricsCertificates(t *testing.T) {
	dir := t.TempDir()
	roots := []*x509.CertPool{writeMetricsCertificate(t, dir)}
	o := newTestOptions(t, env.Namespace(t))
	o.Serving = serving.Options{Secure: ptr.To(true), CertDir: dir}
	m := start(t, o, idle("certificates"))
	within(t, "the manager to be ready", m.Ready())
	roots = append(roots, nil)
	if code, _ := newReader(t, roots[0]).get(t, m.MetricsAddress(), "/metrics", ""); code != http.StatusUnauthorized {
		t.Errorf("with the first certificate: got %d", code)
	}
	roots[1] = writeMetricsCertificate(t, dir)
	deadline := time.Now().Add(soon)
	for {
		_, err := newReader(t, roots[1]).Get("https://" + m.MetricsAddress() + "/metrics")
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the second certificate is not used: %v", err)
		}
	}
}

func TestMetricsCertificatesMissing(t *testing.T) {
	o := newTestOptions(t, "default")
	o.Serving = serving.Options{Secure: ptr.To(true), CertDir: filepath.Join(t.TempDir(), "none")}
	all := []Controller{idle("missing")}
	if err := prepare(&o, all); err != nil {
		t.Fatal(err)
	}
	_, err := newManager(env.Config(t), o, all)
	if err == nil || !strings.Contains(err.Error(), "metrics.certDir: ") || !strings.Contains(err.Error(), "must have tls.crt and tls.key") {
		t.Errorf("newManager: got %v", err)
	}
}

// writeMetricsCertificate writes a new pair into dir and returns who trusts it.
func writeMetricsCertificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	made, err := pki.Template{
		CommonName: "metrics", Names: []string{"localhost", "127.0.0.1"}, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, Lifetime: time.Hour,
	}.Issue(key, pki.Pair{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made.Certificate.Raw})
	for name, content := range map[string][]byte{
		"tls.crt": certificate, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certificate)
	return pool
}
