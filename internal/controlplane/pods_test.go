package controlplane_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/controlplane"
)

// TestLongKwokIsRestartedWithTheAPI kills kube-apiserver with and without somebody who looks after it. Whenever it is back, there
// is a kwok that was started later and so looks at all pods. One that went on would leave some pods as they are for good: of
// 6700 that were created during 12 kills, 300 never ran.
func TestLongKwokIsRestartedWithTheAPI(t *testing.T) {
	t.Parallel()
	dir, binary := realDir(t)
	awaitYounger := func() {
		t.Helper()
		eventually(t, "kube-apiserver runs, and a kwok that is younger", func() bool {
			all := alive(t, dir)
			api, kwok := all["kube-apiserver"], all["kwok"]
			return api.PID != 0 && kwok.PID != 0 && kwok.StartedAt.After(api.StartedAt)
		})
	}
	h := startHelper(t, helperArgs{Dir: dir, Binary: binary, Nodes: 1})
	h.mustBeReady(t)
	before := running(t, dir)["kube-apiserver"]
	kill(t, before)
	eventually(t, "kube-apiserver is back", func() bool { pid := running(t, dir)["kube-apiserver"]; return pid != 0 && pid != before })
	awaitYounger()

	h.kill()
	kill(t, running(t, dir)["kube-apiserver"])
	eventually(t, "kube-apiserver is gone", func() bool { return running(t, dir)["kube-apiserver"] == 0 })
	start(t, controlplane.Options{Dir: dir, Binary: binary, Nodes: 1})
	awaitYounger()
	requireWorking(t, client(t, dir), "after-kills-of-the-api")
}

// TestLongPodsAreReadyAgain says of Pods what kube-controller-manager says when their node was away for too long.
func TestLongPodsAreReadyAgain(t *testing.T) {
	t.Parallel()
	dir, binary := realDir(t)
	start(t, controlplane.Options{Dir: dir, Binary: binary, Nodes: 1})
	c := client(t, dir)
	requireWorking(t, c, "away")
	pods := c.CoreV1().Pods(metav1.NamespaceDefault)
	list, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: "app=away"})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range list.Items {
		patch := []byte(`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`)
		if _, err := pods.Patch(t.Context(), pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	await := func(what string, available int32) {
		t.Helper()
		eventually(t, what, func() bool {
			d, err := c.AppsV1().Deployments(metav1.NamespaceDefault).Get(t.Context(), "away", metav1.GetOptions{})
			return err == nil && d.Status.AvailableReplicas == available
		})
	}
	await("the Deployment is not available", 0)
	await("the Deployment is available again", 2)
	for _, pod := range list.Items {
		now, err := pods.Get(t.Context(), pod.Name, metav1.GetOptions{})
		if err != nil || now.Status.Phase != corev1.PodRunning {
			t.Errorf("the Pod %s does not run any more: %v", pod.Name, err)
		}
		isSimulated := func(c corev1.PodCondition) bool {
			return c.Type == "keelson.dev/Simulated" && c.Status == corev1.ConditionTrue
		}
		if !slices.ContainsFunc(now.Status.Conditions, isSimulated) {
			t.Errorf("the conditions of the Pod %s do not say that it is simulated: %v", pod.Name, now.Status.Conditions)
		}
	}
}

// TestLongSimulatedPodsHaveNoLogs asks for the logs of a simulated Pod, also after another program took over the control plane.
func TestLongSimulatedPodsHaveNoLogs(t *testing.T) {
	t.Parallel()
	dir, binary := realDir(t)
	opts := controlplane.Options{Dir: dir, Binary: binary, Nodes: 1}
	cp := start(t, opts)
	c := client(t, dir)
	requireWorking(t, c, "logs")
	pods := c.CoreV1().Pods(metav1.NamespaceDefault)
	list, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: "app=logs"})
	if err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"at first", "after another start"} {
		logs, err := pods.GetLogs(list.Items[0].Name, &corev1.PodLogOptions{Follow: true}).DoRaw(t.Context())
		if want := "simulated node"; err != nil || !strings.Contains(string(logs), want) {
			t.Errorf("%s: got %q, %v; want a text with %q", when, logs, err, want)
		}
		if err := cp.Detach(); err != nil {
			t.Fatal(err)
		}
		cp = start(t, opts)
	}
}
