package console_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	clusterv1alpha1 "github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	vmv1alpha1 "github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/testing/browser"
)

// provision gives the Cluster of a world the status of a provisioned one, and a Secret with its kubeconfig.
func (w *world) provision(secretType corev1.SecretType) {
	w.t.Helper()
	cluster := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	eventually(w, cluster, func(*clusterv1alpha1.Cluster) bool { return true })
	w.secretOf(cluster, "kubeconfig", "", secretType)
	cluster.Status.Engine, cluster.Status.Version = clusterv1alpha1.EngineLocal, "v1.36.3"
	cluster.Status.KubeconfigRef = &clusterv1alpha1.KubeconfigReference{
		Name: w.namespace, SecretRef: &clusterv1alpha1.SecretReference{Namespace: w.namespace, Name: "kubeconfig", Key: clusterv1alpha1.SecretKey},
	}
	cluster.Status.LastOperation = &clusterv1alpha1.LastOperation{
		Type: clusterv1alpha1.OperationUpgrade, State: clusterv1alpha1.OperationProcessing, Description: "Waiting for etcd", Attempts: 2, LastUpdateTime: metav1.Now(),
	}
	if err := w.client.Status().Update(w.t.Context(), cluster); err != nil {
		w.t.Fatal(err)
	}
}

// secretOf creates a Secret of a Cluster with a kubeconfig of a user.
func (w *world) secretOf(owner *clusterv1alpha1.Cluster, name, user string, secretType corev1.SecretType) {
	w.t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Labels: map[string]string{clusterv1alpha1.LabelClusterName: w.namespace},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, clusterv1alpha1.SchemeGroupVersion.WithKind("Cluster"))}},
		Type: secretType, StringData: map[string]string{clusterv1alpha1.SecretKey: "the kubeconfig of " + user},
	}
	if user != "" {
		secret.Labels[clusterv1alpha1.LabelUser] = user
	}
	if err := w.client.Create(w.t.Context(), secret); err != nil {
		w.t.Fatal(err)
	}
}

func TestClusterPage(t *testing.T) {
	w := newWorld(t)
	w.provision(clusterv1alpha1.SecretTypeKubeconfig)
	b := openPage(t, (&guest{config: w.config}).start(t), "/clusters/"+w.namespace)
	b.Sees("Upgrade", "Waiting for etcd", "attempt 2", "v1.36.3", "Rotate credentials")
	b.Saved("Download the kubeconfig", "text/plain")
	b.Unfold("Objects in this cluster")
	b.Sees("kube-system")
	b.Fill("Kind", "pods")
	b.Sees("There are no Pods")
	b.Fill("Kind", "namespaces")
	b.Sees("kube-system")
	b.Until(`[...document.querySelectorAll("td button")].some((b) => b.textContent === "YAML" && (b.click(), true))`)
	b.Sees("kind: Namespace")
	b.Accessible()
	b.Keep("cluster")
	b.Click("Stop")
	b.Sees("Its data stays")
	b.Click("Stop")
	eventually(w, &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}, func(c *clusterv1alpha1.Cluster) bool {
		return c.Spec.Running != nil && !*c.Spec.Running
	})
}

// A snapshot is taken on the page of a Cluster, and the form of a new Cluster begins with it.
func TestClusterSnapshots(t *testing.T) {
	w := newWorld(t)
	w.provision(clusterv1alpha1.SecretTypeKubeconfig)
	b := openPage(t, w.config, "/clusters/"+w.namespace)
	b.Sees("Cluster snapshots", "It has no snapshots", "1 simulated")
	name := w.namespace + "-before"
	b.Fill("Name of the snapshot", name)
	b.Click("Take a snapshot")
	b.Sees(name, "NoStatus")
	snapshot := &clusterv1alpha1.ClusterSnapshot{ObjectMeta: metav1.ObjectMeta{Name: name}}
	eventually(w, snapshot, func(s *clusterv1alpha1.ClusterSnapshot) bool { return s.Spec.ClusterName == w.namespace })
	t.Cleanup(func() {
		if err := w.client.Delete(context.WithoutCancel(t.Context()), snapshot); err != nil {
			t.Error(err)
		}
	})
	if browser.Value[bool](b, `[...document.querySelectorAll("main td a")].some((a) => a.textContent === "Create a Cluster from it")`) {
		t.Error("a snapshot that is not taken yet is offered")
	}
	snapshot.Status.Version = "v1.36.3"
	meta.SetStatusCondition(&snapshot.Status.Conditions, metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: clusterv1alpha1.ReasonSnapshotTaken})
	if err := w.client.Status().Update(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	b.Sees("SnapshotTaken", "Create a Cluster from it")
	b.Accessible()
	b.Keep("cluster-snapshots")
	b.Until(`[...document.querySelectorAll("main td a")].some((a) => a.textContent === "Create a Cluster from it" && (a.click(), true))`)
	b.Sees("name: copy", "snapshot: "+name)
	b.Click("Check")
	b.Sees("The API accepts it")
}

// A snapshot is taken on the page of a machine, and a new machine begins with it.
func TestMachineSnapshots(t *testing.T) {
	w := newWorld(t)
	b := openPage(t, w.config, "/virtualmachines/"+w.namespace+"/web")
	b.Sees("Machine snapshots", "It has no snapshots")
	b.Fill("Name of the snapshot", "before")
	b.Click("Take a snapshot")
	b.Sees("before", "NoStatus")
	snapshot := &vmv1alpha1.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "before"}}
	eventually(w, snapshot, func(s *vmv1alpha1.VirtualMachineSnapshot) bool { return s.Spec.VirtualMachineName == "web" })
	meta.SetStatusCondition(&snapshot.Status.Conditions, metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: vmv1alpha1.ReasonSnapshotTaken})
	if err := w.client.Status().Update(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	b.Sees("SnapshotTaken", "Create a machine from it")
	b.Accessible()
	b.Keep("machine-snapshots")
	b.Until(`[...document.querySelectorAll("main td a")].some((a) => a.textContent === "Create a machine from it" && (a.click(), true))`)
	b.Sees("name: copy", "namespace: "+w.namespace, "snapshot: before")
	b.Click("Check")
	b.Sees("The API accepts it")
}

// Each user of a Cluster is listed with the Secret of its kubeconfig, which is saved by users who may read it.
func TestClusterUsers(t *testing.T) {
	w := newWorld(t)
	w.provision(clusterv1alpha1.SecretTypeKubeconfig)
	cluster := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	eventually(w, cluster, func(*clusterv1alpha1.Cluster) bool { return true })
	w.secretOf(cluster, "alice", "alice", clusterv1alpha1.SecretTypeKubeconfig)
	w.secretOf(&clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: w.namespace, UID: "another"}}, "bob", "bob", clusterv1alpha1.SecretTypeKubeconfig)
	cluster.Spec.Users = []clusterv1alpha1.ClusterUser{{Name: "alice", Groups: []string{"developers"}}, {Name: "ci"}}
	status := cluster.Status
	if err := w.client.Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	cluster.Status = status
	cluster.Status.Users = []clusterv1alpha1.ClusterUserStatus{
		{Name: "alice", SecretRef: &clusterv1alpha1.SecretReference{Namespace: w.namespace, Name: "alice"}},
		// Not a Secret of this user.
		{Name: "mallory", SecretRef: &clusterv1alpha1.SecretReference{Namespace: w.namespace, Name: "alice"}},
		// Of another Cluster.
		{Name: "bob", SecretRef: &clusterv1alpha1.SecretReference{Namespace: w.namespace, Name: "bob"}},
	}
	if err := w.client.Status().Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	c := serve(t, w.config)
	b := browser.New(t) // closed before the console
	b.Open(strings.Replace(c.URL(), "/#", "/clusters/"+w.namespace+"#", 1))
	b.Sees("alice", "developers", w.namespace+"/alice", "not issued yet")
	b.Accessible()
	v := &visitor{t: t, c: c}
	v.login(token(c.URL()))
	for path, want := range map[string]int{"?user=alice": http.StatusOK, "?user=mallory": http.StatusNotFound, "?user=bob": http.StatusNotFound, "?user=ci": http.StatusNotFound, "?user=other": http.StatusNotFound} {
		got := v.send(http.MethodGet, "/kubeconfig/"+w.namespace+path, nil, nil)
		if got.code != want || strings.Contains(got.body, "the kubeconfig of ") != (want == http.StatusOK) {
			t.Errorf("%s: %d %s, want %d", path, got.code, got.body, want)
		}
	}
}

func TestClusterOfAReader(t *testing.T) {
	w := newWorld(t)
	w.provision(clusterv1alpha1.SecretTypeKubeconfig)
	config := rest.CopyConfig(w.config)
	config.Impersonate.UserName = "eve"
	w.allowEverywhere("eve", "clusterprovisioner.rke.io", "clusters")
	b := openPage(t, config, "/clusters/"+w.namespace, "403")
	b.Until(`[...document.querySelectorAll("main button")].find((b) => b.textContent === "Download the kubeconfig")?.title.startsWith("You may not get secrets in")`)
	b.Unfold("Objects in this cluster")
	b.Sees("You may not get clusters/proxy")
}

// Only the kubeconfig of a Cluster passes, not another Secret that its status names.
func TestOtherSecretsDoNotPass(t *testing.T) {
	w := newWorld(t)
	w.provision(corev1.SecretTypeOpaque)
	v := &visitor{t: t, c: serve(t, w.config)}
	if got := v.send(http.MethodGet, "/kubeconfig/"+w.namespace, nil, nil); got.code != http.StatusUnauthorized {
		t.Errorf("without a session: %d", got.code)
	}
	v.login(token(v.c.URL()))
	for path, want := range map[string]int{
		"/kubeconfig/" + w.namespace: http.StatusNotFound, "/kubeconfig/missing": http.StatusNotFound, "/kubeconfig/UPPER": http.StatusBadRequest,
		"/kubeconfig/a%2fb": http.StatusBadRequest,
	} {
		if got := v.send(http.MethodGet, path, nil, nil); got.code != want || strings.Contains(got.body, "the kubeconfig") {
			t.Errorf("GET %s: %d %s, want %d", path, got.code, got.body, want)
		}
	}
}

func TestScreenThatIsRefused(t *testing.T) {
	w := newWorld(t)
	machine := &vmv1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "desktop"}, Spec: vmv1alpha1.VirtualMachineSpec{Display: &vmv1alpha1.Display{Type: vmv1alpha1.DisplayVGA}}}
	w.create(machine, "True", "GuestReady", "")
	b := openMachine(t, w, &guest{config: w.config, refusal: "VirtualMachine is not running: start it first"}, "desktop", "Screen")
	b.Expect("it has the error") // noVNC logs it
	b.Sees("is not running: start it first")
	b.Saved("Screenshot", "image/png 4")
}
