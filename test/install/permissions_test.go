package install

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keelson-dev/keelson/internal/access"
	"github.com/keelson-dev/keelson/internal/admission"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// home is the namespace of the installation, account its service account.
const (
	home    = "keelson-system"
	account = "keelson-manager"
)

// The transcripts that are not slow run with a manager that has the permissions of an installation by Helm
// with all kinds: none of its requests is forbidden, and it uses every permission.
func TestSmokePermissionsOfTheInstallation(t *testing.T) {
	t.Parallel()
	// As on OpenShift, only users who may update the finalizers of an owner may block its deletion.
	w := newWorld(t, "--enable-admission-plugins=OwnerReferencesPermissionEnforcement")
	if out, err := helm(t, w.Env["KUBECONFIG"], "install", "keelson", chart, "--namespace", home, "--create-namespace", "--wait",
		"--values", valuesIn(t, valueSets["all kinds"])); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	g := w.newGate(t)
	const user = "system:serviceaccount:" + home + ":" + account
	state := w.startManager(t, w.kubeconfigOf(t, g, home, account), user, home, "keelson", "--access-bind-address="+hostAddress(t))
	w.runTranscripts(t, state, "keelson", "")
	w.namespace(t, "rare")
	w.rarely(t, g, user, "rare")
	w.rarelyWithClusters(t, user)
	w.judge(t, user)
}

// startManager runs a manager with a kubeconfig until the end of the test, with a webhook
// configuration of that name, and returns its state directory.
func (w *world) startManager(t *testing.T, kubeconfig, user, home, webhook string, flags ...string) (state string) {
	t.Helper()
	state, rke := filepath.Join(w.dir, "state"), filepath.Join(w.dir, "rke")
	goTool(t, "build", "-o", rke, "../rke")
	address, metrics := harness.FreeAddress(t).String(), harness.FreeAddress(t).String()
	w.callDirectly(t, webhook, address)
	s := w.Shell
	s.Env = map[string]string{"HOME": w.dir}
	words := append([]string{
		"keelson", "manager", "--kubeconfig", kubeconfig, "--leader-elect",
		"--lease-lock-namespace", home, "--secret-namespace", home, "--state-dir", state,
		"--health-probe-bind-address=0", "--vm-driver=qemu,fake", "--rke-binary", rke, "--config", configured(t, fmt.Sprintf("clusters: {rkeConfigDirs: [%q]}", os.TempDir())),
		"--metrics-secure", "--metrics-bind-address", metrics,
		"--webhook-bind-address", address, "--webhook-service-namespace", home, "--webhook-configuration", webhook,
	}, flags...)
	start := func(before string) (bundle string, stop func()) {
		manager := s.Start(t, words...)
		manager.Await(t, "Manager is ready")
		bundle = w.Until(transcript.Quietly(t), "the API server knows another authority of the webhook", transcript.Not(before), "kubectl", "get",
			"validatingwebhookconfiguration", webhook, "-o", "jsonpath={.webhooks[0].clientConfig.caBundle}")
		return bundle, func() {
			manager.Signal(t, syscall.SIGTERM)
			if result := manager.Wait(t); result.Code != 0 {
				t.Errorf("The manager exited with code %d", result.Code)
			}
		}
	}
	bundle, stop := start("")
	stop()
	// The next one finds an invalid authority and replaces it.
	for _, secret := range strings.Fields(w.kubectl(t, "get", "secrets", "--namespace", home, "--selector", "app.kubernetes.io/name=keelson", "-o", "jsonpath={.items[*].metadata.name}")) {
		if secret == admission.SecretName || secret == access.SecretName {
			w.kubectl(t, "delete", "secret", secret, "--namespace", home)
			w.kubectl(t, "create", "secret", "generic", secret, "--namespace", home)
		}
	}
	_, stop = start(bundle)
	t.Cleanup(stop)
	w.readMetrics(t, metrics)
	// Another replica, on another host, waits for the lease.
	standby := s.Start(t, append(slices.Clone(words), "--webhook-bind-address=0", "--metrics-bind-address=0", "--state-dir", state+"-standby")...)
	standby.Await(t, "waiting for the lease")
	standby.Signal(t, syscall.SIGTERM)
	if result := standby.Wait(t); result.Code != 0 {
		t.Errorf("A waiting replica exited with code %d", result.Code)
	}
	return state
}

// runTranscripts runs tests of test/e2e on the cluster, by default those whose names begin with TestSmoke, with a webhook
// configuration of that name, and waits until their objects no longer exist. The others need keelson up itself, or use no other
// permissions.
func (w *world) runTranscripts(t *testing.T, state, webhook, suffix string, names ...string) {
	t.Helper()
	pattern := "^TestSmoke"
	if len(names) > 0 {
		pattern = "^(" + strings.Join(names, "|") + ")$"
	}
	kubeconfig := filepath.Join(w.dir, "admin.kubeconfig")
	// The pages look for Secrets in the namespace of the context.
	cluster := &clientcmdapi.Cluster{Server: w.admin.Host, CertificateAuthority: w.admin.CAFile, CertificateAuthorityData: w.admin.CAData}
	writeKubeconfig(t, kubeconfig, home, cluster, &clientcmdapi.AuthInfo{
		ClientCertificate: w.admin.CertFile, ClientCertificateData: w.admin.CertData,
		ClientKey: w.admin.KeyFile, ClientKeyData: w.admin.KeyData,
	})
	cmd := exec.CommandContext(t.Context(), transcripts(t), "-test.v", "-test.run", pattern)
	cmd.Dir = "../e2e"
	cmd.Env = append(os.Environ(), "KEELSON_E2E_KUBECONFIG="+kubeconfig, "KEELSON_E2E_STATE="+state, "KEELSON_E2E_SUFFIX="+suffix,
		"KEELSON_E2E_WEBHOOK="+webhook)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	output, err := cmd.CombinedOutput()
	for line := range strings.SplitSeq(string(output), "\n") {
		if strings.HasPrefix(line, "--- ") || strings.Contains(line, "SKIP: ") || err != nil {
			t.Log(line)
		}
	}
	if err != nil {
		w.failed = failedTests(string(output))
		t.Fatalf("The transcripts failed with the permissions of the installation: %v", err)
	}
	if strings.Contains(string(output), "--- SKIP") {
		t.Error("A transcript was skipped, so its permissions are unknown; make test installs what it needs")
	}
	for _, name := range names {
		if !strings.Contains(string(output), "--- PASS: "+name+" ") {
			t.Errorf("there is no transcript %s", name)
		}
	}
	w.Until(t, "nothing is left", transcript.Is(""), "kubectl", "get", "keelson", "--all-namespaces", "-o", "name")
}

// failedTests returns the end of the output of each failed test in the output of go test -v.
func failedTests(output string) []string {
	var all []string
	for block := range strings.SplitSeq("\n"+output, "\n--- ") {
		if rest, failed := strings.CutPrefix(block, "FAIL: "); failed {
			lines := strings.Split(rest, "\n")
			all = append(all, "FAIL: "+lines[0]+"\n"+strings.Join(lines[max(1, len(lines)-80):], "\n"))
		}
	}
	return all
}

// transcripts builds the tests of test/e2e once, with the flags of this test, so that the build
// cache is used.
func transcripts(t *testing.T) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	if built.dir == "" {
		dir, err := os.MkdirTemp("", "keelson-transcripts-")
		if err != nil {
			t.Fatal(err)
		}
		built.dir = dir
		race := "-race=false"
		if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
			race = "-race=true"
		}
		goTool(t, "test", "-c", race, "-o", filepath.Join(dir, "e2e.test"), "../e2e")
	}
	return filepath.Join(built.dir, "e2e.test")
}

// built has the test binary of transcripts. TestMain removes it.
var built struct {
	sync.Mutex
	dir string
}

func goTool(t *testing.T, words ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "go", words...).CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(words, " "), err, out)
	}
}

// judge compares the operations of a user with its permissions. Roles in namespaces are equal: a
// permission used in one of them counts as used.
func (w *world) judge(t *testing.T, user string, namespaces ...string) {
	t.Helper()
	r := w.recordOf(t, user)
	if len(r.uses) == 0 {
		t.Fatalf("The audit log has no entries of %s", user)
	}
	for _, refused := range r.refused {
		t.Errorf("The transcripts need a missing permission: %s", refused)
	}
	grants := w.grantsOf(t, user)
	for i := range grants {
		if slices.Contains(namespaces, grants[i].namespace) {
			grants[i].namespace = ""
		}
	}
	if len(namespaces) > 0 {
		// Images are cluster-scoped: in a Role, their rules have no effect, and this manager does not use them.
		grants = slices.DeleteFunc(grants, func(g grant) bool { return strings.HasPrefix(g.resource, "virtualmachineimages") })
	}
	for _, g := range unused(grants, r, finalizersOf(t)) {
		t.Errorf("%s grants what no transcript needs: %s. Remove it from the marker, or write the transcript", g.role, g.use)
	}
	t.Logf("%s has %d permissions and used %d", user, len(grants), len(r.uses))
}

// grantsOf returns everything that roles grant to a service account by name, except what all
// service accounts may do, such as discovery.
func (w *world) grantsOf(t *testing.T, user string) []grant {
	t.Helper()
	client, err := kubernetes.NewForConfig(w.admin)
	if err != nil {
		t.Fatal(err)
	}
	ctx, rbac := t.Context(), client.RbacV1()
	var all []grant
	everywhere, err := rbac.ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, binding := range everywhere.Items {
		if names(binding.Subjects, user) {
			role, err := rbac.ClusterRoles().Get(ctx, binding.RoleRef.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, grants("ClusterRole "+role.Name, "", role.Rules)...)
		}
	}
	somewhere, err := rbac.RoleBindings("").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, binding := range somewhere.Items {
		if names(binding.Subjects, user) {
			all = append(all, grants("Role "+binding.Namespace+"/"+binding.RoleRef.Name, binding.Namespace, rulesOf(ctx, t, client, binding))...)
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s has no permissions", user)
	}
	return all
}

func rulesOf(ctx context.Context, t *testing.T, client kubernetes.Interface, binding rbacv1.RoleBinding) []rbacv1.PolicyRule {
	t.Helper()
	if binding.RoleRef.Kind == "ClusterRole" {
		role, err := client.RbacV1().ClusterRoles().Get(ctx, binding.RoleRef.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return role.Rules
	}
	role, err := client.RbacV1().Roles(binding.Namespace).Get(ctx, binding.RoleRef.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return role.Rules
}

// names reports whether a user is among subjects.
func names(subjects []rbacv1.Subject, user string) bool {
	return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
		return s.Kind == rbacv1.ServiceAccountKind && "system:serviceaccount:"+s.Namespace+":"+s.Name == user
	})
}

// grants returns the individual permissions of rules.
func grants(role, namespace string, rules []rbacv1.PolicyRule) []grant {
	var all []grant
	for _, rule := range rules {
		objects := rule.ResourceNames
		if len(objects) == 0 {
			objects = []string{""}
		}
		for _, verb := range rule.Verbs {
			for _, path := range rule.NonResourceURLs {
				all = append(all, grant{use{verb: verb, resource: path}, role})
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, object := range objects {
						all = append(all, grant{use{verb, group, resource, namespace, object}, role})
					}
				}
			}
		}
	}
	return all
}

// readMetrics reads the metrics of a manager as an authorized user.
func (w *world) readMetrics(t *testing.T, address string) {
	t.Helper()
	w.kubectl(t, "create", "serviceaccount", "prometheus", "--namespace", "default")
	role := w.kubectl(t, "get", "clusterrole", "-o", `jsonpath={range .items[*]}{.metadata.name}{"\n"}{end}`)
	for name := range strings.FieldsSeq(role) {
		if strings.HasSuffix(name, "-metrics-reader") {
			w.kubectl(t, "create", "clusterrolebinding", "prometheus", "--clusterrole", name, "--serviceaccount", "default:prometheus")
		}
	}
	token := w.OK(transcript.Quietly(t), "kubectl", "create", "token", "prometheus")
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // the certificate is self-signed
	transcript.Eventually(t, "the metrics can be read", func() bool {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/metrics", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := client.Do(request)
		if err != nil {
			return false
		}
		return response.Body.Close() == nil && response.StatusCode == http.StatusOK
	})
	client.CloseIdleConnections()
}
