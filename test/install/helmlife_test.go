package install

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// The commands of a Helm user in the life cycle of an installation.
func TestLongHelm(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := newCheckout(t, "KUBECONFIG="+w.Env["KUBECONFIG"])
	c.write(t, installPage, "values.yaml")
	c.write(t, installPage, "namespaces.yaml")
	for _, step := range []struct {
		name string
		run  func(*testing.T, *world, checkout)
	}{
		{"installed and upgraded", upgradedByHelm},
		{"rolled back", rolledBackByHelm},
		{"upgraded while it works", upgradedWhileItWorks},
		{"uninstalled, objects are kept", uninstalledByHelm},
		{"installed in some namespaces", namespacedByHelm},
		{"Prometheus finds it", monitoredByHelm},
		{"another manager on a host", onAHost},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(t, w, c) }) {
			return // later steps depend on this one
		}
	}
}

// replicas returns the image of the manager, and the numbers of desired and ready replicas.
func (w *world) replicas(t *testing.T) string {
	t.Helper()
	return w.kubectl(t, "get", "deployment", "keelson-manager", "--namespace", home,
		"-o", "jsonpath={.spec.template.spec.containers[*].image} {.spec.replicas} {.status.readyReplicas}")
}

func upgradedByHelm(t *testing.T, w *world, c checkout) {
	c.types(t, installPage, helmSection, 0)
	if got, want := w.replicas(t), image+" 3 3"; got != want {
		t.Errorf("after the upgrade: %s, want %s", got, want)
	}
	w.kubectl(t, "create", "-f", "../../examples/manifests/foo.yaml")
}

func rolledBackByHelm(t *testing.T, w *world, _ checkout) {
	if _, err := helm(t, w.Env["KUBECONFIG"], "rollback", "keelson", "1", "--namespace", home, "--wait"); err != nil {
		t.Fatal(err)
	}
	if got, want := w.replicas(t), image+" 2 2"; got != want {
		t.Errorf("after the rollback: %s, want %s", got, want)
	}
}

func uninstalledByHelm(t *testing.T, w *world, c checkout) {
	typed(t, c.dir, c.env, commands(t, uninstallPage, helmSection, 0))
	w.kubectl(t, "get", "foo", "example-foo")
	transcript.Contains(t, w.Fails(t, 1, "kubectl", "get", "clusterrole", "keelson-manager"), "NotFound")
}

// namespacedByHelm adopts the CRDs of the uninstalled release.
func namespacedByHelm(t *testing.T, w *world, c checkout) {
	w.namespace(t, "team-a")
	w.namespace(t, "team-b")
	c.types(t, installPage, helmSection, 1)
	for _, namespace := range []string{"team-a", "team-b"} {
		w.kubectl(t, "get", "rolebinding", "keelson-manager-work", "--namespace", namespace)
	}
	const user = "system:serviceaccount:" + home + ":" + account
	may := func(words ...string) bool {
		return w.Run(transcript.Quietly(t), append([]string{"kubectl", "auth", "can-i", "--quiet", "--as", user}, words...)...).Code == 0
	}
	transcript.Eventually(t, "the roles are effective", func() bool { return may("create", "jobs.batch", "--namespace", "team-b") })
	if may("create", "jobs.batch", "--namespace", "default") {
		t.Error("it may create Jobs in other namespaces")
	}
}

// monitoredByHelm checks that the Prometheus operator finds the endpoints of a ServiceMonitor: it
// selects Services by label, and the port of their endpoints by name.
func monitoredByHelm(t *testing.T, w *world, c checkout) {
	defineOperator(t, w.admin)
	c.types(t, installPage, helmSection, 2)
	get := func(words ...string) string {
		return w.kubectl(t, append([]string{"get", "--namespace", home}, words...)...)
	}
	var labels map[string]string
	if err := json.Unmarshal([]byte(get("servicemonitor", "keelson", "-o", "jsonpath={.spec.selector.matchLabels}")), &labels); err != nil {
		t.Fatal(err)
	}
	var selector []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		selector = append(selector, name+"="+labels[name])
	}
	service := strings.TrimSpace(get("service", "--selector", strings.Join(selector, ","), "-o", "name"))
	if service != "service/keelson-metrics" {
		t.Fatalf("the ServiceMonitor selects %q", service)
	}
	port := get("servicemonitor", "keelson", "-o", "jsonpath={.spec.endpoints[*].port}")
	w.Until(t, "the Service has two replicas", transcript.Is(port+" 8443 2"), "kubectl", "get", "endpointslices", "--namespace", home,
		"--selector", "kubernetes.io/service-name=keelson-metrics",
		"-o", `go-template={{range .items}}{{range .ports}}{{.name}} {{.port}} {{end}}{{len .endpoints}}{{end}}`)
	for _, object := range []string{"networkpolicy/keelson-metrics", "prometheusrule/keelson", "configmap/keelson-dashboard"} {
		get(object)
	}
}

// onAHost runs the second manager, for machines and clusters, next to one in the cluster that
// excludes them but has the webhook: a Cluster becomes ready, and so does its Kubeconfig.
func onAHost(t *testing.T, w *world, c checkout) {
	c.write(t, hostPage, "host.yaml")
	if out, err := helm(t, w.Env["KUBECONFIG"], "upgrade", "keelson", chart, "--namespace", home, "--wait",
		"--values", filepath.Join(c.dir, "values.yaml"), "--values", filepath.Join(c.dir, "host.yaml")); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	webhook := harness.FreeAddress(t).String()
	w.callDirectly(t, "keelson", webhook)
	g := w.newGate(t)
	inside := w.startInstalled(t, "inside", w.kubeconfigOf(t, g, home, account), webhook)
	inside.AwaitReady(t)
	c.types(t, hostPage, hostSection, 0)
	c.types(t, hostPage, hostSection, 1)
	const onHost = "keelson-host"
	stop := w.runManager(t, managerOf(t, hostSection, 2, filepath.Join(c.dir, onHost+".kubeconfig")))

	w.kubectl(t, "create", "-f", "../../examples/manifests/cluster.yaml")
	t.Cleanup(func() { // if the test fails, the processes of the running manager remain
		if t.Failed() {
			w.Run(t, "kubectl", "delete", "cluster", "demo", "--ignore-not-found", "--timeout", transcript.WaitTimeout.String())
		}
	})
	for _, object := range []string{"cluster/demo", "kubeconfig/demo"} {
		w.kubectl(t, "wait", "--for=create", object, "--timeout", transcript.WaitTimeout.String())
		w.kubectl(t, "wait", "--for=condition=Ready", object, "--timeout", transcript.WaitTimeout.String())
	}
	w.kubectl(t, "get", "secret", "demo-kubeconfig", "--namespace", home)
	w.kubectl(t, "delete", "cluster", "demo", "--timeout", transcript.WaitTimeout.String())
	stop()
	inside.Signal(t, syscall.SIGTERM)
	inside.AwaitDone(t)
	for _, name := range []string{account, onHost} {
		for _, refused := range w.recordOf(t, "system:serviceaccount:"+home+":"+name).refused {
			t.Errorf("%s: missing permission: %s", name, refused)
		}
	}
}

// The commands of a user who may grant roles in namespaces, but not install a Deployment.
func TestLongManagerInSomeNamespaces(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := newCheckout(t, "KUBECONFIG="+w.Env["KUBECONFIG"])
	w.namespace(t, "team-a")
	w.namespace(t, "team-b")
	c.types(t, hostPage, namespacesSection, 0)
	kubeconfig := w.kubeconfigOf(t, w.newGate(t), "team-a", "keelson")
	stop := w.runManager(t, managerOf(t, namespacesSection, 1, kubeconfig))
	w.kubectl(t, "create", "--namespace", "team-b", "-f", "../../examples/manifests/foo.yaml")
	w.kubectl(t, "create", "--namespace", "default", "-f", "../../examples/manifests/foo.yaml")
	w.kubectl(t, "wait", "--for=condition=Ready", "foo/example-foo", "--namespace", "team-b", "--timeout", transcript.WaitTimeout.String())
	if status := w.kubectl(t, "get", "foo", "example-foo", "--namespace", "default", "-o", "jsonpath={.status}"); status != "" {
		t.Errorf("a Foo in another namespace has the status %s", status)
	}
	stop()
	for _, refused := range w.recordOf(t, "system:serviceaccount:team-a:keelson").refused {
		t.Errorf("missing permission: %s", refused)
	}
}

// runManager runs a manager command until it is ready, and returns a function that stops it. It
// uses free ports, and keeps its state in the directory of w.
func (w *world) runManager(t *testing.T, words []string) (stop func()) {
	t.Helper()
	s := w.Shell
	s.Env = map[string]string{"HOME": w.dir}
	manager := s.Start(t, append(words, "--health-probe-bind-address=0", "--metrics-bind-address=0", "--state-dir", filepath.Join(w.dir, "state"))...)
	manager.Await(t, "Manager is ready")
	return func() {
		t.Helper()
		manager.Signal(t, syscall.SIGTERM)
		if result := manager.Wait(t); result.Code != 0 {
			t.Errorf("the manager exited with code %d", result.Code)
		}
	}
}
