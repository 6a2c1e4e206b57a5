package crds_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	clusterv1alpha1 "github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func init() {
	resources["Cluster"] = clusterv1alpha1.SchemeGroupVersion.WithResource("clusters")
	resources["ClusterSnapshot"] = clusterv1alpha1.SchemeGroupVersion.WithResource("clustersnapshots")
	resources["Kubeconfig"] = clusterv1alpha1.SchemeGroupVersion.WithResource("kubeconfigs")
}

func TestClustersThatAreAccepted(t *testing.T) {
	for _, tt := range []struct{ name, kind, spec, want string }{
		{name: "an empty spec", kind: "Cluster", spec: `{}`, want: `{}`},
		{name: "of the original", kind: "Cluster", spec: `{"configPath":"/etc/rke/cluster.yml"}`, want: `{"configPath":"/etc/rke/cluster.yml"}`},
		{name: "as the original stored it", kind: "Cluster", spec: `{"ConfigPath":"/etc/rke/cluster.yml"}`, want: `{"ConfigPath":"/etc/rke/cluster.yml"}`},
		{
			name: "everything of a local one", kind: "Cluster",
			spec: `{"engine":"local","version":"v1.36.3","running":false,"expiresAfter":"1h30m","paused":true,"deletionProtection":true,"apiServer":{"port":6443,"certSANs":["a.example","*.b.example","10.0.0.1","::1"],"extraArgs":{"event-ttl":"2h"}}}`,
			want: `{"engine":"local","version":"v1.36.3","running":false,"expiresAfter":"1h30m","paused":true,"deletionProtection":true,"apiServer":{"port":6443,"certSANs":["a.example","*.b.example","10.0.0.1","::1"],"extraArgs":{"event-ttl":"2h"}}}`,
		},
		{name: "simulated nodes", kind: "Cluster", spec: `{"nodes":{"simulated":3}}`, want: `{"nodes":{"simulated":3}}`},
		{name: "real nodes", kind: "Cluster", spec: `{"nodes":{"simulated":0,"real":2}}`, want: `{"nodes":{"simulated":0,"real":2}}`},
		{
			name: "users", kind: "Cluster", spec: `{"users":[{"name":"alice","groups":["dev","oidc:ops"],"ttl":"24h","rotateRequestedAt":"2026-11-25T18:00:00Z"},{"name":"bob"}]}`,
			want: `{"users":[{"name":"alice","groups":["dev","oidc:ops"],"ttl":"24h","rotateRequestedAt":"2026-11-25T18:00:00Z"},{"name":"bob"}]}`,
		},
		{
			name: "everything of a hosted one", kind: "Cluster",
			spec: `{"engine":"hosted","version":"v1.36.3","running":false,"hosted":{"namespace":"team","replicas":3,"storage":{"storageClassName":"fast","size":"4Gi"}},"apiServer":{"certSANs":["a.example"]}}`,
			want: `{"engine":"hosted","version":"v1.36.3","running":false,"hosted":{"namespace":"team","replicas":3,"storage":{"storageClassName":"fast","size":"4Gi"}},"apiServer":{"certSANs":["a.example"]}}`,
		},
		{name: "an address", kind: "Cluster", spec: `{"apiServer":{"address":"192.0.2.7"}}`, want: `{"apiServer":{"address":"192.0.2.7"}}`},
		{name: "no nodes", kind: "Cluster", spec: `{"nodes":{"simulated":0}}`, want: `{"nodes":{"simulated":0}}`},
		{name: "a fork", kind: "Cluster", spec: `{"from":{"snapshot":"a.b-c"}}`, want: `{"from":{"snapshot":"a.b-c"}}`},
		{
			name: "a schedule of snapshots", kind: "Cluster", spec: `{"snapshots":{"schedule":"0 3 * * *","timeZone":"Europe/Berlin","keep":14,"suspend":true}}`,
			want: `{"snapshots":{"schedule":"0 3 * * *","timeZone":"Europe/Berlin","keep":14,"suspend":true}}`,
		},
		{
			name: "a restore", kind: "Cluster", spec: `{"restore":{"snapshot":"before","requestedAt":"2026-11-25T18:00:00Z","keepCurrent":false}}`,
			want: `{"restore":{"snapshot":"before","requestedAt":"2026-11-25T18:00:00Z","keepCurrent":false}}`,
		},
		{name: "a ClusterSnapshot", kind: "ClusterSnapshot", spec: `{"clusterName":"a.b-c"}`, want: `{"clusterName":"a.b-c"}`},
		{name: "a ClusterSnapshot of a copy", kind: "ClusterSnapshot", spec: `{"clusterName":"a","stored":"b-1"}`, want: `{"clusterName":"a","stored":"b-1"}`},
		{name: "a Kubeconfig of the original", kind: "Kubeconfig", spec: `{"configPath":"/etc/rke/kube_config_cluster.yml"}`, want: `{"configPath":"/etc/rke/kube_config_cluster.yml"}`},
		{
			name: "a Kubeconfig with a Secret", kind: "Kubeconfig", spec: `{"secretRef":{"namespace":"a","name":"b"}}`,
			want: `{"secretRef":{"namespace":"a","name":"b","key":"value"}}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := create(t, "", newObject(t, tt.kind, "", tt.spec))
			if err != nil {
				t.Fatalf("it was refused: %v", err)
			}
			if diff := cmp.Diff(newObject(t, tt.kind, "", tt.want).Object["spec"], got.Object["spec"]); diff != "" {
				t.Errorf("stored spec (-want +got):\n%s", diff)
			}
		})
	}
}

func TestClustersThatAreRefused(t *testing.T) {
	for _, tt := range []struct{ name, kind, spec, says string }{
		{"an engine that does not exist", "Cluster", `{"engine":"kind"}`, `"local", "rke"`},
		{"rke without its file", "Cluster", `{"engine":"rke"}`, "spec.configPath is required"},
		{"hosted without a namespace", "Cluster", `{"engine":"hosted","hosted":{}}`, "spec.hosted.namespace"},
		{"hosted nowhere", "Cluster", `{"engine":"hosted"}`, "spec.hosted is required with the engine hosted"},
		{"a namespace for the engine local", "Cluster", `{"hosted":{"namespace":"team"}}`, "for that engine only"},
		{"a file for the engine hosted", "Cluster", `{"engine":"hosted","hosted":{"namespace":"team"},"configPath":"/a.yml"}`, "for the engine rke only"},
		{"two members of etcd", "Cluster", `{"engine":"hosted","hosted":{"namespace":"team","replicas":2}}`, `supported values: "1", "3"`},
		{"a file for the engine local", "Cluster", `{"engine":"local","configPath":"/a.yml"}`, "for the engine rke only"},
		{"a version beside a file", "Cluster", `{"configPath":"/a.yml","version":"v1.36.3"}`, "kubernetes_version in the file"},
		{"flags beside a file", "Cluster", `{"configPath":"/a.yml","apiServer":{"port":6443}}`, "services.kube-api in the file"},
		{"a stopped one of rke", "Cluster", `{"configPath":"/a.yml","running":false}`, "the engine rke cannot stop a cluster"},
		{"nodes beside a file", "Cluster", `{"configPath":"/a.yml","nodes":{"real":1}}`, "the file of spec.configPath has the nodes"},
		{"users beside a file", "Cluster", `{"configPath":"/a.yml","users":[{"name":"alice"}]}`, "create users in the cluster"},
		{"an administrator", "Cluster", `{"users":[{"name":"alice","groups":["system:masters"]}]}`, "belong to Kubernetes"},
		{"a user of Kubernetes", "Cluster", `{"users":[{"name":"system:kube-scheduler"}]}`, "spec.users[0].name"},
		{"a user twice", "Cluster", `{"users":[{"name":"alice"},{"name":"alice"}]}`, "Duplicate value"},
		{"credentials for a moment", "Cluster", `{"users":[{"name":"alice","ttl":"10m"}]}`, "must be from 1h"},
		{"a name as the address", "Cluster", `{"apiServer":{"address":"localhost"}}`, "must be an IPv4 address"},
		{"all addresses", "Cluster", `{"apiServer":{"address":"0.0.0.0"}}`, "must be an IPv4 address"},
		{"an address of IPv6", "Cluster", `{"apiServer":{"address":"::1"}}`, "must be an IPv4 address"},
		{"another address with real nodes", "Cluster", `{"apiServer":{"address":"192.0.2.7"},"nodes":{"real":1}}`, "must be 127.0.0.1 with real nodes"},
		{"nodes of both kinds", "Cluster", `{"nodes":{"simulated":1,"real":1}}`, "nodes are either simulated or real"},
		{"nodes without a number", "Cluster", `{"nodes":{}}`, "at least 1 properties"},
		{"33 real nodes", "Cluster", `{"nodes":{"real":33}}`, "less than or equal to 32"},
		{"fewer nodes than none", "Cluster", `{"nodes":{"simulated":-1}}`, "greater than or equal to 0"},
		{"a time of days", "Cluster", `{"expiresAfter":"1 day"}`, "spec.expiresAfter"},
		{"no time", "Cluster", `{"expiresAfter":"0s"}`, "must be greater than 0"},
		{"a time that no program can read", "Cluster", `{"expiresAfter":"999999h999999h999999h999999h"}`, "spec.expiresAfter"},
		{"a version without v", "Cluster", `{"version":"1.36.3"}`, "spec.version"},
		{"a version of two numbers", "Cluster", `{"version":"v1.36"}`, "spec.version"},
		{"a port below 1024", "Cluster", `{"apiServer":{"port":443}}`, "greater than or equal to 1024"},
		{"a name that is none", "Cluster", `{"apiServer":{"certSANs":["a_b"]}}`, "must be an IP address or a DNS name"},
		{"a name twice", "Cluster", `{"apiServer":{"certSANs":["a","a"]}}`, "Duplicate value"},
		{"101 names", "Cluster", `{"apiServer":{"certSANs":[` + numbered(101, `"a%d"`) + `]}}`, "at most 100 items"},
		{"51 flags", "Cluster", `{"apiServer":{"extraArgs":{` + numbered(51, `"a%d":""`) + `}}}`, "at most 50 items"},
		{"a flag with dashes", "Cluster", `{"apiServer":{"extraArgs":{"--event-ttl":"2h"}}}`, "without leading dashes"},
		{"a flag that the cluster depends on", "Cluster", `{"apiServer":{"extraArgs":{"bind-address":"0.0.0.0"}}}`, "cannot be set"},
		{"a fork of rke", "Cluster", `{"configPath":"/a.yml","from":{"snapshot":"a"}}`, "the engine rke has no snapshots"},
		{"a fork of nothing", "Cluster", `{"from":{}}`, "spec.from.snapshot"},
		{"a fork of a path", "Cluster", `{"from":{"snapshot":"../a"}}`, "spec.from.snapshot"},
		{"a schedule of rke", "Cluster", `{"configPath":"/a.yml","snapshots":{"schedule":"@daily"}}`, "services.etcd.backup_config in the file"},
		{"snapshots at no time", "Cluster", `{"snapshots":{"keep":3}}`, "spec.snapshots.schedule"},
		{"snapshots of which none is kept", "Cluster", `{"snapshots":{"schedule":"@daily","keep":0}}`, "greater than or equal to 1"},
		{"a restore of rke", "Cluster", `{"configPath":"/a.yml","restore":{"snapshot":"a","requestedAt":"2026-11-25T18:00:00Z"}}`, "run rke etcd snapshot-restore"},
		{"a restore from nothing", "Cluster", `{"restore":{"requestedAt":"2026-11-25T18:00:00Z"}}`, "spec.restore.snapshot"},
		{"a restore that was requested at no time", "Cluster", `{"restore":{"snapshot":"a"}}`, "spec.restore.requestedAt"},
		{"a ClusterSnapshot of nothing", "ClusterSnapshot", `{}`, "spec.clusterName"},
		{"a ClusterSnapshot of a copy elsewhere", "ClusterSnapshot", `{"clusterName":"a","stored":"../b"}`, "spec.stored"},
		{"a ClusterSnapshot of no name", "ClusterSnapshot", `{"clusterName":"A"}`, "spec.clusterName"},
		{"a Kubeconfig with a Secret without a name", "Kubeconfig", `{"secretRef":{"namespace":"a"}}`, "spec.secretRef.name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := create(t, "", newObject(t, tt.kind, "", tt.spec))
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want that it is invalid, in words with %q", err, tt.says)
			}
		})
	}
}

// The definition refuses the same flags as the control plane: one list in two languages. Those of kube-apiserver are tried, and
// some that it had or may have.
func TestFlagsThatAClusterDependsOn(t *testing.T) {
	names := []string{
		"admission-control", "advertise-address", "allow-metric-labels-manifest", "allow-privileged", "anonymous-auth", "audit-log-maxage", "audit-log-path", "audit-policy-file", "authentication-config",
		"authorization-config", "authorization-mode", "bind-address", "cert-dir", "client-ca-file", "disable-admission-plugins",
		"debug-socket-path", "egress-selector-config-file", "emulated-version", "enable-admission-plugins", "enable-logs-handler", "encryption-provider-config", "endpoint-reconciler-type", "etcd-prefix",
		"etcd-servers", "event-ttl", "external-hostname", "feature-gates", "goaway-chance", "help", "kubelet-client-certificate", "kubelet-client-key", "oidc-ca-file", "oidc-issuer-url", "runtime-config", "min-compatibility-version",
		"permit-address-sharing", "permit-port-sharing", "profiling", "proxy-client-key-file", "requestheader-allowed-names",
		"secure-port", "service-account-extend-token-expiration", "service-account-issuer", "service-account-key-file",
		"service-account-signing-key-file", "service-cluster-ip-range", "service-node-port-range", "shutdown-delay-duration",
		"storage-backend", "tls-cert-file", "tls-min-version", "tls-private-key-file", "version", "watch-cache",
	}
	binary, err := env.Binary("keelson-kube")
	if err != nil {
		t.Fatal(err)
	}
	help, err := exec.CommandContext(t.Context(), binary, "kube-apiserver", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z][a-z0-9-]*)`).FindAllStringSubmatch(string(help), -1) {
		names = append(names, flag[1])
	}
	if len(names) < 150 {
		t.Errorf("only %d flags were found", len(names))
	}
	for _, name := range names {
		_, err := create(t, "", newObject(t, "Cluster", "", `{"apiServer":{"extraArgs":{"`+name+`":"x"}}}`))
		if refused := apierrors.IsInvalid(err); refused != (controlplane.IsReservedFlag(name) || controlplane.NamesFile(name)) {
			t.Errorf("%s: refused by the definition: %v (%v), by the control plane: %v", name, refused, err, !refused)
		}
	}
}

func clusters(t *testing.T) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(env.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(schema.GroupVersionResource{Group: "clusterprovisioner.rke.io", Version: "v1alpha1", Resource: "clusters"})
}

// store creates a Cluster, which the test has to delete.
func store(t *testing.T, object *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	object.SetGenerateName("crds-")
	object.SetName("")
	stored, err := clusters(t).Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

func TestChangesOfClusters(t *testing.T) {
	for _, tt := range []struct {
		name, was, is string
		refused       bool
	}{
		{"a file appears", `{}`, `{"configPath":"/a.yml"}`, true},
		{"the file goes", `{"configPath":"/a.yml"}`, `{}`, true},
		{"another file", `{"configPath":"/a.yml"}`, `{"configPath":"/b.yml"}`, false},
		{"the file moves to its present place", `{"ConfigPath":"/a.yml"}`, `{"configPath":"/a.yml"}`, false},
		{"from a host into Pods", `{}`, `{"engine":"hosted","hosted":{"namespace":"team"}}`, true},
		{"Pods in another namespace", `{"engine":"hosted","hosted":{"namespace":"team"}}`, `{"engine":"hosted","hosted":{"namespace":"other"}}`, true},
		{"more members", `{"engine":"hosted","hosted":{"namespace":"team"}}`, `{"engine":"hosted","hosted":{"namespace":"team","replicas":3}}`, true},
		{"the default is written out", `{}`, `{"engine":"local"}`, false},
		{"a fork of what exists", `{}`, `{"from":{"snapshot":"a"}}`, true},
		{"a fork that forgets its snapshot", `{"from":{"snapshot":"a"}}`, `{}`, true},
		{"another snapshot for a restore", `{"restore":{"snapshot":"a","requestedAt":"2026-11-25T18:00:01Z"}}`, `{"restore":{"snapshot":"b","requestedAt":"2026-11-25T18:00:01Z"}}`, true},
		{"another restore", `{"restore":{"snapshot":"a","requestedAt":"2026-11-25T18:00:01Z"}}`, `{"restore":{"snapshot":"b","requestedAt":"2026-11-25T18:00:02Z","keepCurrent":false}}`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stored := store(t, newObject(t, "Cluster", "", tt.was))
			stored.Object["spec"] = newObject(t, "Cluster", "", tt.is).Object["spec"]
			_, err := clusters(t).Update(t.Context(), stored, metav1.UpdateOptions{})
			if apierrors.IsInvalid(err) != tt.refused || !tt.refused && err != nil {
				t.Errorf("got %v, want refused: %v", err, tt.refused)
			}
			if err := clusters(t).Delete(t.Context(), stored.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestProtectedClustersCannotBeDeleted(t *testing.T) {
	stored := store(t, newObject(t, "Cluster", "", `{"deletionProtection":true}`))
	refused := func() error {
		return clusters(t).Delete(t.Context(), stored.GetName(), metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	}
	// The policy works a moment after it was installed.
	harness.Eventually(t, "the deletion is refused", func() bool {
		err := refused()
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "spec.deletionProtection")
	})
	stored.Object["spec"] = map[string]any{"deletionProtection": false}
	if _, err := clusters(t).Update(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	err := clusters(t).Delete(t.Context(), stored.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(stored.GetUID())}})
	if err != nil {
		t.Errorf("the Cluster is not protected any more, and cannot be deleted: %v", err)
	}
}
