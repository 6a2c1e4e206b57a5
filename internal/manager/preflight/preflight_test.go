package preflight

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	samplecontrollerv1alpha1 "github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func TestMain(m *testing.M) { env.Main(m) }

// newClient returns the administrator's client.
func newClient(t *testing.T, cfg *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// as returns cfg for another user, who may do nothing yet.
func as(cfg *rest.Config, user string) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user}
	return cfg
}

// applyManifest does what a person would do with the text: hands it to the API.
func applyManifest(t *testing.T, c client.Client, text string) {
	t.Helper()
	for document := range strings.SplitSeq(text, "---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), object); err != nil {
			t.Fatalf("parse the manifest: %v\n%s", err, document)
		}
		apply := client.ApplyConfigurationFromUnstructured(object)
		if err := c.Apply(t.Context(), apply, client.FieldOwner("test"), client.ForceOwnership); err != nil {
			t.Fatalf("apply %s %s: %v", object.GetKind(), object.GetName(), err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), harness.WaitTimeout)
			defer cancel()
			if err := client.IgnoreNotFound(c.Delete(ctx, object)); err != nil {
				t.Errorf("delete %s %s: %v", object.GetKind(), object.GetName(), err)
			}
		})
	}
}

// eventuallyPasses waits for the preflight to pass: the API server learns of new roles
// by watching, a moment after they were written.
func eventuallyPasses(t *testing.T, cfg *rest.Config, o Options) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, harness.WaitTimeout, true, func(ctx context.Context) (bool, error) {
		last = Check(ctx, cfg, o)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("preflight with everything granted: %v", last)
	}
}

// refused runs a preflight that has to end with a *Error.
func refused(t *testing.T, cfg *rest.Config, o Options) *Error {
	t.Helper()
	err := Check(t.Context(), cfg, o)
	var missing *Error
	if !errors.As(err, &missing) {
		t.Fatalf("preflight: got %v, want a *Error", err)
	}
	return missing
}

// missingIn returns what is missing as texts.
func missingIn(e *Error) []string {
	var lines []string
	for _, p := range e.Missing() {
		lines = append(lines, p.String())
	}
	return lines
}

// foos is a resource that the API server of the tests serves.
var foos = samplecontrollerv1alpha1.SchemeGroupVersion.WithResource("foos")

// needs returns the options of a manager in one namespace with one controller, which needs these rules.
func needs(t *testing.T, namespace string, rules ...rbacv1.PolicyRule) Options {
	t.Helper()
	return Options{
		Timeout: time.Minute, Log: testr.New(t), LeaseNamespace: namespace,
		Resources: []Resource{{Controller: namespace, GroupVersionResource: foos}},
		// The names of the roles are this test's alone.
		Requirements: []Requirement{{Owner: namespace, Role: "keelson-" + namespace, Rules: rules, Namespaces: []string{namespace}}},
	}
}

func TestPreflightRefusesARoleWhereAClusterRoleIsNeeded(t *testing.T) {
	admin := env.Config(t)
	c := newClient(t, admin)
	namespace := env.Namespace(t)
	user := as(admin, "somebody-in-"+namespace)

	inNamespace := needs(t, namespace,
		rbacv1.PolicyRule{APIGroups: []string{foos.Group}, Resources: []string{"foos"}, Verbs: []string{"get", "list", "watch"}},
		rbacv1.PolicyRule{APIGroups: []string{foos.Group}, Resources: []string{"foos/status"}, Verbs: []string{"patch", "update"}})
	everywhere := inNamespace
	everywhere.Requirements = slices.Clone(inNamespace.Requirements)
	everywhere.Requirements[0].Namespaces = nil

	// With nothing granted, a manager of one namespace asks for a Role there.
	first := refused(t, user, inNamespace)
	wantFirst := []string{
		"get foos.samplecontroller.k8s.io in namespace " + namespace,
		"list foos.samplecontroller.k8s.io in namespace " + namespace,
		"watch foos.samplecontroller.k8s.io in namespace " + namespace,
		"patch foos.samplecontroller.k8s.io/status in namespace " + namespace,
		"update foos.samplecontroller.k8s.io/status in namespace " + namespace,
	}
	if diff := cmp.Diff(wantFirst, missingIn(first)); diff != "" {
		t.Errorf("missing with nothing granted (-want +got):\n%s", diff)
	}
	applyManifest(t, c, first.Manifest)
	eventuallyPasses(t, user, inNamespace)

	// With that Role, a manager of the whole cluster is told about the trap.
	second := refused(t, user, everywhere)
	wantSecond := []string{
		"get foos.samplecontroller.k8s.io",
		"list foos.samplecontroller.k8s.io",
		"watch foos.samplecontroller.k8s.io",
		"patch foos.samplecontroller.k8s.io/status",
		"update foos.samplecontroller.k8s.io/status",
	}
	if diff := cmp.Diff(wantSecond, missingIn(second)); diff != "" {
		t.Errorf("missing with a Role (-want +got):\n%s", diff)
	}
	if second.grantedIn != namespace || !strings.Contains(second.Error(), "a Role works only in its own") {
		t.Errorf("the text does not explain that the Role in %s is not enough:\n%v", namespace, second)
	}
	applyManifest(t, c, second.Manifest)
	eventuallyPasses(t, user, everywhere)
}

func TestPreflightAsksForTheLease(t *testing.T) {
	admin := env.Config(t)
	c := newClient(t, admin)
	namespace := env.Namespace(t)
	leases := rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}}
	create, change := leases, leases
	create.Verbs = []string{"create"}
	change.Verbs, change.ResourceNames = []string{"get", "update"}, []string{"keelson"}
	o := needs(t, namespace, create, change)
	user := as(admin, "system:serviceaccount:"+namespace+":manager")

	missing := refused(t, user, o)
	want := []string{
		"create leases.coordination.k8s.io in namespace " + namespace,
		`get leases.coordination.k8s.io "keelson" in namespace ` + namespace,
		`update leases.coordination.k8s.io "keelson" in namespace ` + namespace,
	}
	if diff := cmp.Diff(want, missingIn(missing)); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
	applyManifest(t, c, missing.Manifest)
	eventuallyPasses(t, user, o)
}

func TestPreflightNamesClusterScopedResources(t *testing.T) {
	admin := env.Config(t)
	c := newClient(t, admin)
	namespace := env.Namespace(t)
	o := needs(t, namespace, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes", "pods"}, Verbs: []string{"list"}})
	user := as(admin, "somebody-in-"+namespace)

	missing := refused(t, user, o)
	if diff := cmp.Diff([]string{"list nodes", "list pods in namespace " + namespace}, missingIn(missing)); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
	applyManifest(t, c, missing.Manifest)
	eventuallyPasses(t, user, o)
}

func TestPreflightListsUnservedResources(t *testing.T) {
	t.Parallel() // it waits for the resources
	unknown := schema.GroupVersionResource{Group: "nowhere.example", Version: "v1", Resource: "things"}
	old := foos.GroupResource().WithVersion("v0")
	o := Options{Timeout: time.Minute, Log: testr.New(t), Resources: []Resource{
		{Controller: "unserved", GroupVersionResource: foos}, {Controller: "unserved", GroupVersionResource: unknown}, {Controller: "unserved", GroupVersionResource: old},
	}}

	missing := refused(t, env.Config(t), o)
	if diff := cmp.Diff(o.Resources[1:], missing.unserved); diff != "" {
		t.Errorf("unserved (-want +got):\n%s", diff)
	}
	if missing.Manifest != "" {
		t.Errorf("a manifest for permissions that are not missing:\n%s", missing.Manifest)
	}
}

// Whoever applies definitions and starts the manager right after that is not refused.
func TestPreflightWaitsForResourcesThatAreAboutToBeServed(t *testing.T) {
	t.Parallel()
	admin := env.Config(t)
	c := newClient(t, admin)
	group := env.Namespace(t) + ".example"
	late := schema.GroupVersionResource{Group: group, Version: "v1", Resource: "lates"}
	o := Options{Timeout: time.Minute, Log: testr.New(t), Resources: []Resource{{Controller: "late", GroupVersionResource: late}}}
	result := make(chan error, 1)
	go func() { result <- Check(t.Context(), admin, o) }()
	applyManifest(t, c, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: lates.`+group+`
spec:
  group: `+group+`
  names: {kind: Late, listKind: LateList, plural: lates, singular: late}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`)
	if err := <-result; err != nil {
		t.Errorf("preflight: %v", err)
	}
}

// answering is an API server that has no resource at all. It answers its n-th request,
// from 1, with what status(n) says, and with its empty discovery where that is 200.
func answering(t *testing.T, status func(n int32) int) *httptest.Server {
	t.Helper()
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		code := status(requests.Add(1))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		body := `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`
		if code != http.StatusOK {
			body = `{"kind":"Status","apiVersion":"v1","status":"Failure"}`
		}
		if _, err := w.Write([]byte(body)); err != nil {
			t.Errorf("answer: %v", err)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

func TestAwaitServer(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	tests := []struct {
		name    string
		host    string
		timeout time.Duration
		want    []string // in the error; none means success
	}{
		{
			name: "it answers after a while", timeout: time.Minute,
			host: answering(t, func(n int32) int {
				if n <= 4 {
					return http.StatusServiceUnavailable
				}
				return http.StatusOK
			}).URL,
		},
		{
			name: "nobody is there", timeout: 300 * time.Millisecond, host: closed.URL,
			want: []string{closed.URL + " does not answer", "connection refused", "preflight.timeout: 300ms"},
		},
		{
			name: "it never recovers", timeout: 300 * time.Millisecond,
			host: answering(t, func(int32) int { return http.StatusServiceUnavailable }).URL,
			want: []string{"does not answer", "preflight.timeout: 300ms"},
		},
		{
			name: "bad credentials are not waited out", timeout: time.Minute,
			host: answering(t, func(int32) int { return http.StatusUnauthorized }).URL,
			want: []string{"does not accept the credentials"},
		},
		{
			name: "nor is somebody who may not even ask", timeout: time.Minute,
			host: answering(t, func(int32) int { return http.StatusForbidden }).URL,
			want: []string{"bind the ClusterRole system:discovery"},
		},
		{
			name: "nor a server that is no API server", timeout: time.Minute, host: "https://" + strings.TrimPrefix(
				answering(t, func(int32) int { return http.StatusOK }).URL, "http://"),
			want: []string{"discover the resources of the API server https://", "server gave HTTP response to HTTPS client"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := newChecker(&rest.Config{Host: tt.host}, testr.New(t))
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.awaitServer(t.Context(), tt.timeout)
			if len(tt.want) == 0 && err != nil {
				t.Errorf("awaitServer: %v", err)
			}
			for _, want := range tt.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("awaitServer: got %v, want it to say %q", err, want)
				}
			}
		})
	}
}

// homeless returns the options of a manager that keeps its Lease in the namespace keelson-system, which Check creates.
func homeless(t *testing.T) Options {
	t.Helper()
	change := rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "update"}}
	home := &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: "keelson-system", Labels: map[string]string{"team": "of-the-manager"}},
	}
	get := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{home.Name}, Verbs: []string{"get"}}
	return Options{
		Timeout: time.Minute, Log: testr.New(t), LeaseNamespace: home.Name, Home: home,
		Requirements: []Requirement{
			{Owner: "leader election", Role: "keelson-lease-keelson", Rules: []rbacv1.PolicyRule{change}, Namespaces: []string{home.Name}},
			{Owner: "manager", Role: "keelson-namespace", Rules: []rbacv1.PolicyRule{get}},
		},
	}
}

// Check creates the namespace that it is given, as it is given. It leaves a namespace that exists.
func TestPreflightMakesTheNamespace(t *testing.T) {
	config := env.Own(t)
	c := newClient(t, config)
	o := homeless(t)
	for _, what := range []string{"creates it", "finds it"} {
		if err := Check(t.Context(), config, o); err != nil {
			t.Fatalf("a preflight that %s: %v", what, err)
		}
	}
	var namespace corev1.Namespace
	if err := c.Get(t.Context(), client.ObjectKey{Name: "keelson-system"}, &namespace); err != nil {
		t.Fatal(err)
	}
	if got := namespace.Labels["team"]; got != "of-the-manager" {
		t.Errorf("the label is %q", got)
	}
}

// A user who may not make the namespace is told so, with the manifest that does.
func TestPreflightNamesTheNamespaceThatIsMissing(t *testing.T) {
	admin := env.Own(t)
	c := newClient(t, admin)
	o := homeless(t)
	user := as(admin, "somebody")
	first := refused(t, user, o)
	want := []string{
		`get namespaces "keelson-system"`,
		`get leases.coordination.k8s.io in namespace keelson-system`,
		`update leases.coordination.k8s.io in namespace keelson-system`,
	}
	got := missingIn(first)
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("missing with nothing granted (-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(first.Manifest, "apiVersion: v1\nkind: Namespace\n") {
		t.Errorf("the manifest does not begin with the namespace:\n%s", first.Manifest)
	}

	// A ClusterRole grants it all, and says nothing about the namespace itself.
	objects := []runtime.Object{}
	for i, s := range first.shortages {
		s.Namespaces, s.Role = nil, fmt.Sprint("keelson-everywhere-", i)
		objects = append(objects, s.grant("", "somebody", func(schema.GroupResource) bool { return true })...)
	}
	text, err := manifest(objects)
	if err != nil {
		t.Fatal(err)
	}
	applyManifest(t, c, text)
	var second *Error
	harness.Eventually(t, "only the namespace is missing", func() bool {
		return errors.As(Check(t.Context(), user, o), &second) && second.namespace != ""
	})
	for _, want := range []string{
		"has no namespace keelson-system", `User "somebody" cannot create resource "namespaces"`, "kubectl apply -f", strings.TrimSpace(second.Manifest),
	} {
		if !strings.Contains(second.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, second)
		}
	}
	applyManifest(t, c, second.Manifest)
	eventuallyPasses(t, user, o)
}
