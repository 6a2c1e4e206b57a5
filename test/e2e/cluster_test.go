package e2e

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/process"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/signals"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

const demo = "cluster/demo"

// clusterSession returns a session for cluster-scoped kinds. It needs a manager on this host.
func clusterSession(t *testing.T) session {
	t.Helper()
	if stateDir == "" {
		t.Skip("SKIP: clusters run on the manager's host, which is not this one")
	}
	if _, err := env.Binary("keelson-kube"); err != nil {
		t.Fatal(err)
	}
	return shell(t)
}

// user returns a session in a cluster, with the kubeconfig from its Secret.
func (s session) user(t *testing.T, cluster string) session {
	t.Helper()
	ref := strings.Fields(s.field(t, "kubeconfig/"+cluster, "{.spec.secretRef.namespace} {.spec.secretRef.name} {.spec.secretRef.key}"))
	encoded := s.kubectl(t, "get", "secret", "--namespace", ref[0], ref[1], "-o", "jsonpath={.data."+ref[2]+"}")
	decoded, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, decoded, 0o600); err != nil {
		t.Fatal(err)
	}
	user := shell(t)
	user.Env["KUBECONFIG"] = path
	return user
}

func TestSmokeCluster(t *testing.T) {
	t.Parallel()
	s := clusterSession(t)

	// An empty spec creates a cluster within seconds.
	s.kubectl(t, "create", "-f", manifest("cluster.yaml"))
	s.wait(t, "condition=Provisioned", demo)
	s.wait(t, "condition=Ready", demo)
	transcript.Contains(t, s.kubectl(t, "get", demo), "ENGINE", "VERSION", "PHASE", "READY", "ENDPOINT", "local", "v1.", "https://127.0.0.1:")
	s.wait(t, "condition=Ready", "kubeconfig/demo")

	// It is a real, separate cluster.
	user := s.user(t, "demo")
	transcript.Contains(t, user.kubectl(t, "auth", "whoami"), "demo-admin", "system:masters")
	transcript.Contains(t, user.kubectl(t, "get", "namespaces", "-o", "name"), "namespace/kube-system")
	user.kubectl(t, "create", "deployment", "web", "--image", "nginx", "--replicas", "2")
	user.wait(t, "condition=Available", "deployment/web")
	user.kubectl(t, "create", "job", "once", "--image", "busybox")
	user.wait(t, "condition=Complete", "job/once")
	const robot = "system:serviceaccount:default:robot"
	user.kubectl(t, "create", "serviceaccount", "robot")
	transcript.Contains(t, user.Fails(t, 1, "kubectl", "auth", "can-i", "list", "pods", "--as", robot), "no")
	user.kubectl(t, "create", "rolebinding", "robot", "--clusterrole", "view", "--serviceaccount", "default:robot")
	user.until(t, "yes", transcript.Is("yes"), "auth", "can-i", "list", "pods", "--as", robot)
	user.kubectl(t, "create", "namespace", "strict")
	user.kubectl(t, "label", "namespace", "strict", "pod-security.kubernetes.io/enforce=restricted")
	transcript.Eventually(t, "its API server knows the label, and the ServiceAccount of the namespace", func() bool {
		result := user.Run(t, "kubectl", "run", "rude", "--namespace", "strict", "--image", "nginx", "--dry-run=server")
		return result.Code == 1 && strings.Contains(result.Stderr, "violates PodSecurity")
	})
	user.Fails(t, 1, "kubectl", "create", "quota", "broken", "--hard", "pods=-1")
	if out := s.kubectl(t, "get", "deployments", "--all-namespaces", "-o", "name"); strings.Contains(out, "deployment.apps/web\n") {
		t.Errorf("the Deployment of the cluster is in the cluster of the manager: %s", out)
	}

	// The failure of a component is reported, and the component restarts.
	dir := filepath.Join(stateDir, "clusters", s.field(t, demo, "{.metadata.uid}"))
	const since = `{.status.conditions[?(@.type=="Ready")].lastTransitionTime} {.status.conditions[?(@.type=="Ready")].status}`
	before := s.field(t, demo, since)
	kill(t, dir, "kube-apiserver")
	s.until(t, "Ready was False and is True", func(out string) bool { return out != before && strings.HasSuffix(out, " True") },
		"get", demo, "-o", "jsonpath="+since)
	s.until(t, "an event reports it", transcript.Not(""), "get", "events", "--field-selector", "reason=ComponentDown,involvedObject.name=demo", "-o", "name")
	user.kubectl(t, "get", "deployment", "web")

	// A deleted Secret is recreated.
	secrets := s.field(t, "kubeconfig/demo", "{.spec.secretRef.namespace}")
	s.kubectl(t, "delete", "secret", "demo-kubeconfig", "--namespace", secrets)
	s.kubectl(t, "wait", "--for=create", "secret/demo-kubeconfig", "--namespace", secrets, "--timeout", transcript.WaitTimeout.String())
	s.user(t, "demo").kubectl(t, "get", "deployment", "web")

	// It is stopped without a process left, and starts again with its objects.
	s.kubectl(t, "patch", demo, "--type", "merge", "-p", `{"spec":{"running":false}}`)
	s.wait(t, "jsonpath={.status.phase}=Stopped", demo)
	if left := transcript.Left(dir); len(left) > 0 {
		t.Errorf("processes of the stopped cluster: %v", left)
	}
	user.Fails(t, 1, "kubectl", "get", "deployment", "web")
	s.kubectl(t, "patch", demo, "--type", "merge", "-p", `{"spec":{"running":true}}`)
	s.wait(t, "condition=Ready", demo)
	user.kubectl(t, "get", "deployment", "web")

	// After the deletion nothing is left.
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
	s.kubectl(t, "delete", demo)
	transcript.Contains(t, s.Fails(t, 1, "kubectl", "get", "kubeconfig", "demo"), "NotFound")
	transcript.Contains(t, s.Fails(t, 1, "kubectl", "get", "secret", "demo-kubeconfig", "--namespace", secrets), "NotFound")
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("leftover directory of the cluster: %v", err)
	}
	if left := transcript.Left(dir); len(left) > 0 {
		t.Errorf("leaked processes of the cluster: %v", left)
	}
}

// kill kills a component of a cluster with SIGKILL.
func kill(t *testing.T, dir, component string) {
	t.Helper()
	statuses, err := process.Peek(controlplane.Processes(dir))
	if err != nil {
		t.Fatal(err)
	}
	pid := 0
	for _, s := range statuses {
		if s.ID == component && s.State == process.Running {
			pid = s.PID
		}
	}
	t.Logf("$ kill -9 %d # %s", pid, component)
	signals.Send(t, pid, syscall.SIGKILL)
}

func TestSmokeProtectedCluster(t *testing.T) {
	t.Parallel()
	s := clusterSession(t)
	s.Stdin = `{"apiVersion":"clusterprovisioner.rke.io/v1alpha1","kind":"Cluster","metadata":{"name":"safe"},"spec":{"deletionProtection":true,"paused":true}}`
	s.kubectl(t, "create", "-f", "-")
	transcript.Contains(t, s.Fails(t, 1, "kubectl", "delete", "cluster", "safe"), "set spec.deletionProtection to false first")
	s.kubectl(t, "patch", "cluster/safe", "--type", "merge", "-p", `{"spec":{"deletionProtection":false}}`)
	s.kubectl(t, "delete", "cluster", "safe")
}

// As in the original project, with the stand-in for rke.
func TestSmokeClusterByRKE(t *testing.T) {
	t.Parallel()
	s := clusterSession(t)
	dir := t.TempDir()
	config := filepath.Join(dir, "cluster_aws.yml")
	write := func(more string) {
		if err := os.WriteFile(config, []byte("nodes:\n- {address: 127.0.0.1, user: ops, role: [controlplane, worker, etcd]}\nssh_key: hunter2\n"+more), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	calls := func(want ...string) {
		t.Helper()
		var got string
		defer func() {
			if t.Failed() {
				t.Logf("calls of rke:\n%s", got)
			}
		}()
		transcript.Eventually(t, "rke has the expected calls", func() bool {
			data, _ := os.ReadFile(filepath.Join(dir, "cluster_aws.calls")) // not written yet
			got = strings.TrimSpace(string(data))
			return got == strings.Join(want, "\n")
		})
	}
	up, remove := "rke up --config "+config, "rke remove --force --config "+config
	write("standin: {pause: 1s}\n")
	original, err := os.ReadFile(manifest("cluster-rke.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	s.Stdin = strings.ReplaceAll(string(original), "/etc/keelson/rke/cluster_aws.yml", config)
	s.kubectl(t, "create", "-f", "-")
	s.Stdin = ""

	// The progress is visible during the run; secrets never are.
	s.until(t, "a step is reported", func(out string) bool { return strings.HasPrefix(out, "[") },
		"get", "cluster/clusteraws", "-o", "jsonpath={.status.lastOperation.description}")
	s.wait(t, "condition=Provisioned", "cluster/clusteraws")
	calls(up)
	applied := s.field(t, "cluster/clusteraws", "{.status.appliedConfig}")
	transcript.Contains(t, applied, "127.0.0.1", "********")
	if strings.Contains(applied, "hunter2") {
		t.Errorf("appliedConfig contains a secret: %s", applied)
	}
	s.wait(t, "create", "kubeconfig/clusteraws")
	s.untilField(t, "kubeconfig/clusteraws", "{.spec.configPath}", filepath.Join(dir, "kube_config_cluster_aws.yml"))

	// Another file causes another run. The state file must be kept.
	write("kubernetes_version: v1.28.15\n")
	calls(up, up)
	s.wait(t, "condition=Provisioned", "cluster/clusteraws")
	state := filepath.Join(dir, "cluster_aws.rkestate")
	kept, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(state); err != nil {
		t.Fatal(err)
	}
	s.untilField(t, "cluster/clusteraws", `{.status.conditions[?(@.type=="Provisioned")].reason}`, "StateFileMissing")
	if err := os.WriteFile(state, kept, 0o600); err != nil {
		t.Fatal(err)
	}
	s.wait(t, "condition=Provisioned", "cluster/clusteraws")
	calls(up, up)

	s.kubectl(t, "delete", "cluster/clusteraws")
	calls(up, up, remove)
	if _, err := os.Stat(state); !os.IsNotExist(err) {
		t.Errorf("leftover state file: %v", err)
	}
}
