//go:build linux

package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/controller/cluster/snapshot"
	"github.com/keelson-dev/keelson/internal/engine/etcdsnapshot"
	"github.com/keelson-dev/keelson/internal/engine/hosted"
	"github.com/keelson-dev/keelson/internal/testing/enginetest"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// kubeImage is the image of keelson-kube on the node, and kubeVersion its Kubernetes version.
const (
	kubeImage   = "keelson-kube:test"
	kubeVersion = "v1.36.3"
)

// loadKube loads the image of keelson-kube into the node.
func (u *user) loadKube(t *testing.T) {
	t.Helper()
	u.loadKubeAs(t, kubeImage, "keelson-kube")
}

// loadKubeAs loads a program with the components of a version as an image into the node.
func (u *user) loadKubeAs(t *testing.T, image, name string) {
	t.Helper()
	program, err := env.Binary(name)
	if err != nil {
		t.Fatal(err)
	}
	if program, err = filepath.EvalSymlinks(program); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.Link(program, filepath.Join(folder, "keelson-kube")); err != nil {
		t.Fatal(err)
	}
	u.OK(t, "keelson", "node", "image", "load", "--data-dir", u.data, "--name", image, "--entrypoint", "/keelson-kube", folder)
}

// TestLongHostedContract runs the contract of engines on a node, with exactly the permissions of the ClusterRole, in namespaces with
// enforced Pod Security.
func TestLongHostedContract(t *testing.T) {
	u := newUser(t)
	u.up(t)
	u.loadKube(t)
	config, err := clientcmd.BuildConfigFromFlags("", u.Env["KUBECONFIG"])
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	u.kubectl(t, "apply", "-f", "../../../config/rbac/hosted.yaml")
	enginetest.Run(t, func(t *testing.T) enginetest.Place { return u.hostedPlace(t, config, client) })
	t.Run("snapshot", func(t *testing.T) { checkHostedSnapshot(t, u.hostedPlace(t, config, client)) })
}

// checkHostedSnapshot takes a snapshot of a cluster.
func checkHostedSnapshot(t *testing.T, place enginetest.Place) {
	t.Helper()
	engine := place.NewEngine()
	engine.Notify(func(string) {})
	request := cluster.Request{Name: "saved", UID: "saved", Spec: place.Spec}
	if err := engine.Apply(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "it runs", func() bool {
		seen, err := engine.Observe(t.Context(), request)
		return err == nil && seen.Running
	})
	of := snapshot.Source{Name: request.Name, UID: request.UID, Spec: request.Spec}
	saved, err := engine.(etcdsnapshot.Saver).SaveSnapshot(t.Context(), of, filepath.Join(t.TempDir(), "etcd.db"))
	if err != nil || saved.Version != kubeVersion || saved.Revision == 0 {
		t.Errorf("the snapshot is %+v, %v", saved, err)
	}
}

// hostedManager is the user whose permissions the engine has.
const hostedManager = "manager"

// hostedPlace returns a place for clusters in a namespace of their own.
func (u *user) hostedPlace(t *testing.T, config *rest.Config, client kubernetes.Interface) enginetest.Place {
	t.Helper()
	restricted := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "hosted-", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	created, err := client.CoreV1().Namespaces().Create(t.Context(), restricted, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "hosted"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "keelson-hosted"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: hostedManager}},
	}
	if _, err := client.RbacV1().RoleBindings(created.Name).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	asManager := rest.CopyConfig(config)
	asManager.Impersonate.UserName = hostedManager
	manager, err := kubernetes.NewForConfig(asManager)
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the API server knows the binding", func() bool {
		_, err := manager.AppsV1().Deployments(created.Name).List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
	return enginetest.Place{
		NewEngine: func() cluster.Engine {
			engine, err := hosted.New(hosted.Options{Config: asManager, Images: map[string]string{kubeVersion: "docker.io/library/" + kubeImage}})
			if err != nil {
				t.Fatal(err)
			}
			return engine
		},
		Spec: v1alpha1.ClusterSpec{Engine: v1alpha1.EngineHosted, Hosted: &v1alpha1.HostedControlPlane{Namespace: created.Name}},
		Change: func(r *cluster.Request) {
			r.Spec.APIServer = &v1alpha1.APIServer{CertSANs: []string{"demo.example"}, ExtraArgs: map[string]string{"event-ttl": "2h"}}
		},
		Lose: func(cluster.Request) {
			if err := client.CoreV1().Secrets(created.Name).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
				t.Fatal(err)
			}
		},
		Left: func(cluster.Request) []string { return u.leftIn(t, created.Name) },
	}
}

// leftIn returns what the engine may have left in a namespace, as kubectl names it.
func (u *user) leftIn(t *testing.T, namespace string) []string {
	t.Helper()
	return strings.Fields(u.kubectl(t, "get", "pods,secrets,services,statefulsets,deployments,persistentvolumeclaims,networkpolicies", "--namespace", namespace, "-o", "name"))
}

// kubeconfigOf returns a file with the kubeconfig of a user of the Cluster.
func (u *user) kubeconfigOf(t *testing.T, name string) string {
	t.Helper()
	file := filepath.Join(u.home, name+".kubeconfig")
	content := u.kubectl(t, "get", "secrets", "--all-namespaces", "--selector", v1alpha1.LabelUser+"="+name, "-o", "go-template={{range .items}}{{.data.value | base64decode}}{{end}}")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestSmokeHostedCluster is the life of a Cluster in Pods: it is created, used, survives the loss of its Pods, gives users
// credentials, is stopped and started, and deleted.
func TestSmokeHostedCluster(t *testing.T) {
	u := newUser(t)
	c := &tenant{user: u, kubeconfig: filepath.Join(u.home, "demo.kubeconfig")}
	config := filepath.Join(u.home, "keelson.yaml")
	if err := os.WriteFile(config, []byte(hostedConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	u.OK(t, "keelson", "up", "--detach", "--node=real", "--vm-driver=fake", "--data-dir", u.data, "--config", config)
	u.loadKube(t)
	u.kubectl(t, "create", "namespace", "team")
	u.kubectl(t, "label", "namespace", "team", "pod-security.kubernetes.io/enforce=restricted")
	u.steps(t, []step{
		{"it is Ready", func(t *testing.T, u *user) {
			began := time.Now()
			u.apply(t, hostedCluster)
			c.awaitCondition(t, "Ready")
			t.Logf("Ready after %.1f s", time.Since(began).Seconds())
			transcript.Contains(t, u.kubectl(t, "get", "cluster", "demo"), "hosted", kubeVersion, "True", "https://")
			if err := os.WriteFile(c.kubeconfig, []byte(c.cluster(t, "kubeconfig", "demo")), 0o600); err != nil {
				t.Fatal(err)
			}
			c.in(t, "create", "configmap", "kept", "--from-literal=a=b")
			c.in(t, "create", "deployment", "web", "--image=app:v1") // its controllers run
			u.Until(t, "a Pod is made", transcript.Is("Pending"), "kubectl", "--kubeconfig", c.kubeconfig, "get", "pods", "-o", "jsonpath={.items[*].status.phase}")
		}},
		{"it goes on without its Pods", func(t *testing.T, u *user) {
			u.kubectl(t, "delete", "pods", "--all", "--namespace", "team", "--grace-period=0", "--force")
			u.Until(t, "the API answers", transcript.Is("b"), "kubectl", "--kubeconfig", c.kubeconfig, "get", "configmap", "kept", "-o", "jsonpath={.data.a}")
			c.awaitCondition(t, "Ready")
		}},
		{"another Cluster is made of its snapshot", func(t *testing.T, u *user) {
			u.apply(t, hostedSnapshot)
			u.kubectl(t, "wait", "clustersnapshot/before", "--for=condition=Ready", "--timeout", transcript.WaitTimeout.String())
			transcript.Contains(t, u.kubectl(t, "get", "clustersnapshot", "before"), "demo", "True")
			u.apply(t, strings.NewReplacer("name: demo", "name: fork", "engine: hosted", "engine: hosted, from: {snapshot: before}").Replace(hostedCluster))
			began := time.Now()
			u.kubectl(t, "wait", "cluster/fork", "--for=condition=Ready", "--timeout", transcript.WaitTimeout.String())
			t.Logf("Ready after %.1f s", time.Since(began).Seconds())
			fork := filepath.Join(u.home, "fork.kubeconfig")
			if err := os.WriteFile(fork, []byte(c.cluster(t, "kubeconfig", "fork")), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := u.kubectl(t, "--kubeconfig", fork, "get", "configmap", "kept", "-o", "jsonpath={.data.a}"); got != "b" {
				t.Errorf("the fork has %q", got)
			}
			authority := func(kubeconfig string) string {
				return u.kubectl(t, "--kubeconfig", kubeconfig, "get", "configmap", "kube-root-ca.crt", "-o", "jsonpath={.data.ca\\.crt}")
			}
			harness.Eventually(t, "it publishes its own authority", func() bool { return authority(fork) != authority(c.kubeconfig) })
			u.kubectl(t, "delete", "cluster/fork", "--timeout", transcript.WaitTimeout.String())
		}},
		{"it is restored from its snapshot", func(t *testing.T, u *user) {
			c.in(t, "delete", "configmap", "kept")
			c.in(t, "create", "configmap", "later")
			c.patchSpec(t, `{"restore":{"snapshot":"before","requestedAt":"2026-01-02T03:04:05Z"}}`)
			began := time.Now()
			c.awaitCondition(t, "Restored")
			c.awaitCondition(t, "Ready")
			t.Logf("restored after %.1f s", time.Since(began).Seconds())
			if got := c.in(t, "get", "configmaps", "-o", "jsonpath={.items[*].metadata.name}"); got != "kept kube-root-ca.crt" {
				t.Errorf("after the restore there are the ConfigMaps %s", got)
			}
			c.in(t, "scale", "deployment", "web", "--replicas=2") // its controllers run
			u.Until(t, "a Pod is made", transcript.Is("Pending Pending"), "kubectl", "--kubeconfig", c.kubeconfig, "get", "pods", "-o", "jsonpath={.items[*].status.phase}")
			u.kubectl(t, "delete", "clustersnapshots", "--all", "--timeout", transcript.WaitTimeout.String())
		}},
		{"users come, get new credentials and go", func(t *testing.T, u *user) {
			c.patchSpec(t, `{"users":[{"name":"alice","groups":["developers"]}]}`)
			c.awaitCondition(t, "UsersReady")
			alice := u.kubeconfigOf(t, "alice")
			transcript.Contains(t, u.kubectl(t, "--kubeconfig", alice, "auth", "whoami"), "alice", "developers")
			old := filepath.Join(u.home, "old.kubeconfig")
			if err := os.Rename(c.kubeconfig, old); err != nil {
				t.Fatal(err)
			}
			c.patchSpec(t, `{"rotateRequestedAt":"2026-01-02T03:04:05Z","users":[]}`)
			u.Until(t, "the credentials are new", transcript.Is("2026-01-02T03:04:05Z Succeeded"), "kubectl", "get", "cluster", "demo",
				"-o", "jsonpath={.status.lastRotateRequestedAt} {.status.lastOperation.state}")
			if err := os.WriteFile(c.kubeconfig, []byte(c.cluster(t, "kubeconfig", "demo")), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, valid := range []string{c.kubeconfig, old} { // the old one is, for ten minutes
				transcript.Contains(t, u.kubectl(t, "--kubeconfig", valid, "auth", "whoami"), "cluster.admin")
			}
			harness.Eventually(t, "alice has no access", func() bool { return u.Run(t, "kubectl", "--kubeconfig", alice, "auth", "whoami").Code != 0 })
		}},
		{"it is stopped and started", func(t *testing.T, u *user) {
			c.patchSpec(t, `{"running":false}`)
			u.kubectl(t, "wait", "cluster/demo", "--for=jsonpath={.status.phase}=Stopped", "--timeout", transcript.WaitTimeout.String())
			if left := u.kubectl(t, "get", "pods", "--namespace", "team", "-o", "name"); left != "" {
				t.Errorf("Pods of a stopped cluster: %s", left)
			}
			c.patchSpec(t, `{"running":true}`)
			u.Until(t, "it runs", transcript.Is("Provisioned"), "kubectl", "get", "cluster", "demo", "-o", "jsonpath={.status.phase}")
			u.Until(t, "the API answers", transcript.Is("b"), "kubectl", "--kubeconfig", c.kubeconfig, "get", "configmap", "kept", "-o", "jsonpath={.data.a}")
		}},
		{"deleted, it leaves nothing", func(t *testing.T, u *user) {
			u.kubectl(t, "delete", "cluster", "demo", "--timeout", transcript.WaitTimeout.String())
			if left := u.leftIn(t, "team"); len(left) > 0 {
				t.Errorf("left behind: %s", left)
			}
		}},
	})
}

const hostedConfig = `apiVersion: config.keelson.dev/v1alpha1
kind: KeelsonConfiguration
clusters:
  hostedImages: {` + kubeVersion + `: "docker.io/library/` + kubeImage + `"}
`

const hostedSnapshot = `apiVersion: clusterprovisioner.rke.io/v1alpha1
kind: ClusterSnapshot
metadata: {name: before}
spec: {clusterName: demo}
`

const hostedCluster = `apiVersion: clusterprovisioner.rke.io/v1alpha1
kind: Cluster
metadata: {name: demo}
spec: {engine: hosted, hosted: {namespace: team}}
`
