package cluster

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// execute runs the command, with a home directory of its own.
func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_DATA_HOME", "")
	return harness.Execute(t, New(), args...)
}

func TestManifest(t *testing.T) {
	for args, want := range map[string]string{
		"demo": `apiVersion: clusterprovisioner.rke.io/v1alpha1
kind: Cluster
metadata:
  name: demo
spec: {}
`,
		"demo --version v1.36.3 --api-address 192.0.2.7 --api-port 16443 --cert-san a.example --cert-san b.example --expires-after 8h --idle-stop-after 30m --deletion-protection": `apiVersion: clusterprovisioner.rke.io/v1alpha1
kind: Cluster
metadata:
  name: demo
spec:
  apiServer:
    address: 192.0.2.7
    certSANs:
    - a.example
    - b.example
    port: 16443
  deletionProtection: true
  expiresAfter: 8h0m0s
  idle:
    stopAfter: 30m0s
  version: v1.36.3
`,
		"demo --nodes 2": `apiVersion: clusterprovisioner.rke.io/v1alpha1
kind: Cluster
metadata:
  name: demo
spec:
  nodes:
    real: 2
`,
		"copy --from before": `apiVersion: clusterprovisioner.rke.io/v1alpha1
kind: Cluster
metadata:
  name: copy
spec:
  from:
    snapshot: before
`,
		"demo --snapshot-schedule @daily --snapshot-keep 3": `apiVersion: clusterprovisioner.rke.io/v1alpha1
kind: Cluster
metadata:
  name: demo
spec:
  snapshots:
    keep: 3
    schedule: '@daily'
`,
		"old --rke-config /etc/keelson/rke/old.yml": `apiVersion: clusterprovisioner.rke.io/v1alpha1
kind: Cluster
metadata:
  name: old
spec:
  configPath: /etc/keelson/rke/old.yml
`,
	} {
		got, err := execute(t, append([]string{"create", "--dry-run=client", "-o", "yaml"}, strings.Fields(args)...)...)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got)\n%s", args, err, diff)
		}
	}
}

func TestSnapshotManifest(t *testing.T) {
	got, err := execute(t, "snapshot", "demo", "--name", "before", "--dry-run=client", "-o", "yaml")
	want := `apiVersion: clusterprovisioner.rke.io/v1alpha1
kind: ClusterSnapshot
metadata:
  name: before
spec:
  clusterName: demo
`
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	if name := newClusterSnapshot("demo", "", at).Name; name != "demo-20260102-020405" {
		t.Errorf("the default name is %s", name)
	}
	long := strings.Repeat("a", validation.DNS1123SubdomainMaxLength)
	name := newClusterSnapshot(long, "", at).Name
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 || !strings.HasSuffix(name, "-20260102-020405") {
		t.Errorf("the default name of a long one is %s: %v", name, problems)
	}
}

func TestUsageErrors(t *testing.T) {
	for args, want := range map[string]string{
		"create":                                  "takes one NAME",
		"create a b":                              "takes one NAME",
		"create a --dry-run=perhaps":              "must be none, client or server",
		"create a -o wide":                        "must be yaml, json or name",
		"create a --nodes 33":                     "--nodes=33: must be",
		"create a --nodes 1 --rke-config b":       "--rke-config cannot be combined",
		"create a --from b --rke-config c":        "--rke-config cannot be combined",
		"create a --snapshot-keep 0":              "--snapshot-keep=0: must be",
		"create a --snapshot-keep 3":              "--snapshot-keep goes with --snapshot-schedule",
		"restore a":                               "--snapshot is required",
		"restore --snapshot b":                    "takes one NAME",
		"snapshot":                                "takes one NAME",
		"snapshot a -o wide":                      "must be yaml, json or name",
		"rehearse":                                "takes one NAME",
		"rehearse a -o wide":                      "must be text or json",
		"create a --api-port 70000":               "--api-port=70000: must be",
		"create a --idle-stop-after 10s":          "--idle-stop-after=10s: must be",
		"create a --idle-stop-after 1h --nodes 1": "--idle-stop-after cannot be combined",
		"create a --expires-after 100ms":          "--expires-after=100ms: must be",
		"create a --rke-config b --version c":     "cannot be combined",
		"kubeconfig":                              "takes one NAME",
		"delete":                                  "takes one or more NAMEs",
		"start":                                   "takes one or more NAMEs",
		"upgrade a":                               "--version is required",
		"list -o xml":                             "must be wide, json, yaml or name",
		"list demo":                               "takes no argument",
	} {
		_, err := execute(t, strings.Fields(args)...)
		if wrong := (*usage.Error)(nil); !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
	if _, err := execute(t, "list"); err == nil || !strings.Contains(err.Error(), "the kubeconfig has no current context") {
		t.Errorf("without an instance: %v", err)
	}
}

// conditions returns the conditions of a Cluster that are True.
func conditions(generation int64, types ...string) []metav1.Condition {
	var all []metav1.Condition
	for _, kind := range types {
		all = append(all, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, ObservedGeneration: generation})
	}
	return all
}

func TestIsReady(t *testing.T) {
	for _, test := range []struct {
		name       string
		conditions []metav1.Condition
		want       bool
	}{
		{"new", nil, false},
		{"without a kubeconfig", conditions(2, "Provisioned", "Ready"), false},
		{"ready before the last change", conditions(1, "Provisioned", "Ready", "KubeconfigAvailable"), false},
		{"ready", conditions(2, "Provisioned", "Ready", "KubeconfigAvailable"), true},
	} {
		cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Status: v1alpha1.ClusterStatus{Conditions: test.conditions}}
		if got := isReady(cluster); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

// While a command waits for a Cluster to be ready, it shows the condition that is not True yet, whatever the others say.
func TestDescribeBlocking(t *testing.T) {
	for blocking, want := range map[string]string{
		"Provisioned":         "demo: Provisioned: Provisioned is False: no space",
		"Ready":               "demo: Provisioned: Ready is False: no space",
		"KubeconfigAvailable": "demo: Provisioned: KubeconfigAvailable is False: no space",
		"NodesReady":          "demo: Provisioned: NodesReady is False: no space",
	} {
		cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "demo"}}
		cluster.Spec.Nodes = &v1alpha1.ClusterNodes{Real: ptr.To(int32(1))}
		cluster.Status = v1alpha1.ClusterStatus{Phase: v1alpha1.PhaseProvisioned, Message: "The API reports that it is ready"}
		cluster.Status.Conditions = conditions(0, "Provisioned", "Ready", "KubeconfigAvailable", "NodesReady")
		if got, want := describeBlocking(cluster), "demo: Provisioned"; got != want {
			t.Errorf("ready: got %q, want %q", got, want)
		}
		condition := meta.FindStatusCondition(cluster.Status.Conditions, blocking)
		condition.Status, condition.Message = metav1.ConditionFalse, "no\n  space"
		if got := describeBlocking(cluster); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "demo", Generation: 2}}
	if got, want := describeBlocking(cluster), "demo: Pending"; got != want {
		t.Errorf("without a status: got %q, want %q", got, want)
	}
}

func TestDescribeStatus(t *testing.T) {
	cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "demo"}}
	if got, want := describeStatus(cluster), "demo: Pending"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	cluster.Status = v1alpha1.ClusterStatus{Phase: v1alpha1.PhaseFailed, Message: "etcd:\n  no space"}
	if got, want := describeStatus(cluster), "demo: Failed: etcd: no space"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// kubeconfigOf returns a kubeconfig with one context.
func kubeconfigOf(name, server string) *clientcmdapi.Config {
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthority: "ca.crt"}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificate: "/pki/client.crt", ClientKey: "/pki/client.key"}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: "mine"}
	config.CurrentContext = name
	return config
}

// The way through the API has its address, its authority and the credentials of the user.
func TestProxied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	other := kubeconfigOf("host", "https://host.example:6443/k8s/")
	other.Clusters["host"] = &clientcmdapi.Cluster{Server: "https://host.example:6443/k8s/", TLSServerName: "inside.example"}
	other.AuthInfos["host"] = &clientcmdapi.AuthInfo{Token: "secret"}
	if err := clientcmd.WriteToFile(*other, path); err != nil {
		t.Fatal(err)
	}
	flags := target.Flags{Kubeconfig: path, Context: "host"}
	api, err := flags.API(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, err := proxied(api, "demo")
	if err != nil {
		t.Fatal(err)
	}
	want := clientcmdapi.NewConfig()
	want.Clusters["keelson-demo"] = &clientcmdapi.Cluster{
		Server: "https://host.example:6443/k8s/apis/access.cloudnative.tw/v1alpha1/clusters/demo/proxy", TLSServerName: "inside.example",
	}
	want.AuthInfos["keelson-demo"] = &clientcmdapi.AuthInfo{Token: "secret"}
	want.Contexts["keelson-demo"] = &clientcmdapi.Context{Cluster: "keelson-demo", AuthInfo: "keelson-demo"}
	want.CurrentContext = "keelson-demo"
	if diff := cmp.Diff(text(t, want), text(t, got)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func text(t *testing.T, config *clientcmdapi.Config) string {
	t.Helper()
	text, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestRenamed(t *testing.T) {
	got, err := renamed([]byte(text(t, kubeconfigOf("demo-admin@demo", "https://127.0.0.1:1"))), "demo")
	if err != nil || got.Clusters["keelson-demo"].Server != "https://127.0.0.1:1" || got.AuthInfos["keelson-demo"].ClientKey != "/pki/client.key" {
		t.Errorf("%v, %s", err, text(t, got))
	}
	for _, bad := range []string{"", "{", "apiVersion: v1\nkind: Config\ncurrent-context: a\n"} {
		if _, err := renamed([]byte(bad), "demo"); err == nil || !strings.Contains(err.Error(), "kubeconfig of Cluster demo") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// A merge adds the context and makes it the current one, a second merge replaces it, and the deletion removes it.
func TestMerge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	t.Setenv("KUBECONFIG", path)
	if err := clientcmd.WriteToFile(*kubeconfigOf("mine", "https://mine.example"), path); err != nil {
		t.Fatal(err)
	}
	servers := func() (string, map[string]string) {
		t.Helper()
		config, err := clientcmd.LoadFromFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for name, context := range config.Contexts {
			found[name] = config.Clusters[context.Cluster].Server + " " + context.Namespace
		}
		return config.CurrentContext, found
	}
	for _, server := range []string{"https://127.0.0.1:1", "https://127.0.0.1:2"} {
		ours := newConfig("demo", &clientcmdapi.Cluster{Server: server}, &clientcmdapi.AuthInfo{Token: "a"})
		var out bytes.Buffer
		if err := mergeContext(&out, ours, &target.API{Selected: target.Flags{Context: "mine"}}); err != nil {
			t.Fatal(err)
		}
		current, all := servers()
		want := map[string]string{"mine": "https://mine.example mine", "keelson-demo": server + " "}
		if diff := cmp.Diff(want, all); diff != "" || current != "keelson-demo" || !strings.Contains(out.String(), path) {
			t.Errorf("current %s, %q (-want +got)\n%s", current, out.String(), diff)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	access := clientcmd.NewDefaultPathOptions()
	if err := unmerge(access, "demo", "https://127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	if _, all := servers(); all["keelson-demo"] == "" {
		t.Error("a context of another cluster of this name was removed")
	}
	if err := unmerge(access, "demo", "https://127.0.0.1:3", "https://127.0.0.1:2"); err != nil {
		t.Fatal(err)
	}
	if current, all := servers(); current != "" || len(all) != 1 {
		t.Errorf("left: %s, %v", current, all)
	}
}
