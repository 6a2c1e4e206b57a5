package manager

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

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// idle is a controller that does nothing.
func idle(name string) Controller {
	return newTestController(name, func(client.Client) reconcile.Func {
		return func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil }
	})
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
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := client.IgnoreNotFound(c.Delete(ctx, object)); err != nil {
				t.Errorf("delete %s %s: %v", object.GetKind(), object.GetName(), err)
			}
		})
	}
}

// eventuallyPasses waits for the preflight to pass: the API server learns of new roles
// by watching, a moment after they were written.
func eventuallyPasses(t *testing.T, cfg *rest.Config, o Options, all []Controller) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 10*time.Second, true, func(ctx context.Context) (bool, error) {
		last = preflight(ctx, cfg, o, all)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("preflight with everything granted: %v", last)
	}
}

// refused runs a preflight that has to end with a *PreflightError.
func refused(t *testing.T, cfg *rest.Config, o Options, all []Controller) *PreflightError {
	t.Helper()
	err := preflight(t.Context(), cfg, o, all)
	var missing *PreflightError
	if !errors.As(err, &missing) {
		t.Fatalf("preflight: got %v, want a *PreflightError", err)
	}
	return missing
}

// missingIn is what is missing, as "namespace: verb target" lines.
func missingIn(e *PreflightError) []string {
	var lines []string
	for _, s := range e.shortages {
		for _, p := range s.missing {
			lines = append(lines, p.namespace+": "+p.verb+" "+p.target())
		}
	}
	return lines
}

func TestPreflightRefusesARoleWhereAClusterRoleIsNeeded(t *testing.T) {
	admin := env.Config(t)
	c := newTestClient(t, admin)
	namespace := env.Namespace(t)
	all := []Controller{idle(namespace)} // the names of its roles are this test's alone
	user := as(admin, "somebody-in-"+namespace)

	inNamespace := newTestOptions(t, namespace)
	if err := inNamespace.complete(""); err != nil {
		t.Fatal(err)
	}
	everywhere := inNamespace
	everywhere.Namespaces = nil

	// With nothing granted, a manager of one namespace asks for a Role there.
	first := refused(t, user, inNamespace, all)
	wantFirst := []string{
		namespace + ": get foos.samplecontroller.k8s.io",
		namespace + ": list foos.samplecontroller.k8s.io",
		namespace + ": watch foos.samplecontroller.k8s.io",
		namespace + ": patch foos.samplecontroller.k8s.io/status",
		namespace + ": update foos.samplecontroller.k8s.io/status",
	}
	if diff := cmp.Diff(wantFirst, missingIn(first)); diff != "" {
		t.Errorf("missing with nothing granted (-want +got):\n%s", diff)
	}
	applyManifest(t, c, first.Manifest)
	eventuallyPasses(t, user, inNamespace, all)

	// With that Role, a manager of the whole cluster is told about the trap.
	second := refused(t, user, everywhere, all)
	wantSecond := []string{
		": get foos.samplecontroller.k8s.io",
		": list foos.samplecontroller.k8s.io",
		": watch foos.samplecontroller.k8s.io",
		": patch foos.samplecontroller.k8s.io/status",
		": update foos.samplecontroller.k8s.io/status",
	}
	if diff := cmp.Diff(wantSecond, missingIn(second)); diff != "" {
		t.Errorf("missing with a Role (-want +got):\n%s", diff)
	}
	if second.grantedIn != namespace || !strings.Contains(second.Error(), "a Role works only in its own") {
		t.Errorf("the text does not explain that the Role in %s is not enough:\n%v", namespace, second)
	}
	applyManifest(t, c, second.Manifest)
	eventuallyPasses(t, user, everywhere, all)
}

func TestPreflightAsksForTheLease(t *testing.T) {
	admin := env.Config(t)
	c := newTestClient(t, admin)
	namespace := env.Namespace(t)
	controller := idle(namespace)
	controller.Permissions = func() ([]rbacv1.PolicyRule, error) { return nil, nil }
	o := newTestOptions(t, namespace)
	o.LeaderElection.Enabled = ptr.To(true)
	user := as(admin, "system:serviceaccount:"+namespace+":manager")

	missing := refused(t, user, o, []Controller{controller})
	want := []string{
		namespace + ": create leases.coordination.k8s.io",
		namespace + `: get leases.coordination.k8s.io "keelson"`,
		namespace + `: update leases.coordination.k8s.io "keelson"`,
	}
	if diff := cmp.Diff(want, missingIn(missing)); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
	applyManifest(t, c, missing.Manifest)
	eventuallyPasses(t, user, o, []Controller{controller})
}

func TestPreflightNamesClusterScopedResources(t *testing.T) {
	admin := env.Config(t)
	c := newTestClient(t, admin)
	namespace := env.Namespace(t)
	controller := idle(namespace)
	controller.Permissions = func() ([]rbacv1.PolicyRule, error) {
		return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes", "pods"}, Verbs: []string{"list"}}}, nil
	}
	o := newTestOptions(t, namespace)
	user := as(admin, "somebody-in-"+namespace)

	missing := refused(t, user, o, []Controller{controller})
	if diff := cmp.Diff([]string{": list nodes", namespace + ": list pods"}, missingIn(missing)); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
	applyManifest(t, c, missing.Manifest)
	eventuallyPasses(t, user, o, []Controller{controller})
}

func TestPreflightListsUnservedResources(t *testing.T) {
	t.Parallel() // it waits for the resources
	controller := idle("unserved")
	unknown := schema.GroupVersionResource{Group: "nowhere.example", Version: "v1", Resource: "things"}
	old := foos.GroupResource().WithVersion("v0")
	controller.Resources = append(controller.Resources, unknown, old)
	o := newTestOptions(t, "default")

	missing := refused(t, env.Config(t), o, []Controller{controller})
	want := []unserved{{controller: "unserved", resource: unknown}, {controller: "unserved", resource: old}}
	if diff := cmp.Diff(want, missing.unserved, cmp.AllowUnexported(unserved{})); diff != "" {
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
	c := newTestClient(t, admin)
	group := env.Namespace(t) + ".example"
	late := idle("late")
	late.Resources = []schema.GroupVersionResource{{Group: group, Version: "v1", Resource: "lates"}}
	o := newTestOptions(t, "default")
	result := make(chan error, 1)
	go func() { result <- preflight(t.Context(), admin, o, []Controller{late}) }()
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
	if err := within(t, "the preflight", result); err != nil {
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
			want: []string{closed.URL + " does not answer", "connection refused", "--preflight-timeout=300ms"},
		},
		{
			name: "it never recovers", timeout: 300 * time.Millisecond,
			host: answering(t, func(int32) int { return http.StatusServiceUnavailable }).URL,
			want: []string{"does not answer", "--preflight-timeout=300ms"},
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
			want: []string{"ask the API server https://", "server gave HTTP response to HTTPS client"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := newChecker(&rest.Config{Host: tt.host}, newTestLogger(t))
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

func TestRunEndsQuietlyWhenToldToStopDuringThePreflight(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := newTestOptions(t, metav1.NamespaceDefault)
	time.AfterFunc(50*time.Millisecond, cancel)
	if err := run(ctx, &rest.Config{Host: closed.URL}, o, []Controller{idle("idle")}); err != nil {
		t.Errorf("run: %v", err)
	}
}

// homeless returns options for a manager outside of a Pod, without any namespace, and a controller that asks for nothing.
func homeless(t *testing.T) (Options, []Controller) {
	t.Helper()
	controller := idle("homeless")
	controller.Resources = nil // an API server of its own has no definitions
	controller.Permissions = func() ([]rbacv1.PolicyRule, error) { return nil, nil }
	o := newTestOptions(t, metav1.NamespaceDefault)
	o.LeaderElection.Enabled = ptr.To(true)
	o.LeaderElection.LockNamespace = ""
	if err := o.complete(""); err != nil {
		t.Fatal(err)
	}
	return o, []Controller{controller}
}

// A manager outside of a Pod makes its namespace, closed to Pods that could do harm, and is content with one that exists.
func TestPreflightMakesTheNamespace(t *testing.T) {
	config := env.Own(t)
	c := newTestClient(t, config)
	o, all := homeless(t)
	for _, what := range []string{"makes it", "finds it"} {
		if err := preflight(t.Context(), config, o, all); err != nil {
			t.Fatalf("a preflight that %s: %v", what, err)
		}
	}
	var namespace corev1.Namespace
	if err := c.Get(t.Context(), client.ObjectKey{Name: "keelson-system"}, &namespace); err != nil {
		t.Fatal(err)
	}
	if got := namespace.Labels["pod-security.kubernetes.io/enforce"]; got != "restricted" {
		t.Errorf("pod security: got %q, want restricted", got)
	}
}

// A user who may not make the namespace is told so, with the manifest that does.
func TestPreflightNamesTheNamespaceThatIsMissing(t *testing.T) {
	admin := env.Own(t)
	c := newTestClient(t, admin)
	o, all := homeless(t)
	user := as(admin, "somebody")
	first := refused(t, user, o, all)
	want := []string{
		`default: get leases.coordination.k8s.io "keelson"`, `default: update leases.coordination.k8s.io "keelson"`,
		": get namespaces \"keelson-system\"",
		"keelson-system: create leases.coordination.k8s.io",
		`keelson-system: get leases.coordination.k8s.io "keelson"`,
		`keelson-system: update leases.coordination.k8s.io "keelson"`,
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
		s.namespaces, s.role = nil, fmt.Sprint("keelson-everywhere-", i)
		objects = append(objects, s.grant("", "somebody", func(schema.GroupResource) bool { return true })...)
	}
	text, err := manifest(objects)
	if err != nil {
		t.Fatal(err)
	}
	applyManifest(t, c, text)
	var second *PreflightError
	harness.Eventually(t, "only the namespace is missing", func() bool {
		return errors.As(preflight(t.Context(), user, o, all), &second) && second.namespace != ""
	})
	for _, want := range []string{
		"has no namespace keelson-system", `User "somebody" cannot create resource "namespaces"`, "kubectl apply -f", strings.TrimSpace(second.Manifest),
	} {
		if !strings.Contains(second.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, second)
		}
	}
	applyManifest(t, c, second.Manifest)
	eventuallyPasses(t, user, o, all)
}

// What has a place of the user's choice needs no namespace of ours, and no permission at its former place.
func TestPreflightWithChosenNamespaces(t *testing.T) {
	admin := env.Config(t)
	namespace := env.Namespace(t)
	o, all := homeless(t)
	o.LeaderElection.LockNamespace, o.former = namespace, former{}
	for _, line := range missingIn(refused(t, as(admin, "somebody-in-"+namespace), o, all)) {
		if !strings.HasPrefix(line, namespace+": ") {
			t.Errorf("it asks for %s", line)
		}
	}
}
