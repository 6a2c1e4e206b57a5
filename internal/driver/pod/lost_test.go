package pod

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// TestIsLost has Pods as Kubernetes 1.36 shows them.
func TestIsLost(t *testing.T) {
	// deleted makes the Pod one that is being deleted since some time, and whose kubelet has seen this generation of it.
	deleted := func(w *world, ago time.Duration, seen int64) {
		w.pod.Generation, w.pod.Status.ObservedGeneration = 2, seen
		w.pod.DeletionTimestamp, w.pod.DeletionGracePeriodSeconds = ptr.To(w.ago(ago-time.Minute)), ptr.To[int64](60)
	}
	byTaint := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByTaintManager"}
	byEviction := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI"}
	for name, test := range map[string]struct {
		change func(*world)
		says   string
	}{
		"it runs":           {func(*world) {}, ""},
		"its agent is lost": {func(w *world) { w.unready(time.Minute) }, ""},
		"a readiness gate, which somebody has added, is not open": {func(w *world) {
			w.pod.Status.Conditions[1].Status, w.pod.Status.Conditions[1].Reason = corev1.ConditionFalse, "ReadinessGatesNotReady"
		}, ""},
		"its node does not answer": {func(w *world) { w.pod.Status.Conditions[1].Status = corev1.ConditionFalse }, "the node a does not answer"},
		"its node does not answer, and has a taint": {func(w *world) {
			w.pod.Status.Conditions[1].Status = corev1.ConditionFalse
			w.pod.Status.Conditions = append(w.pod.Status.Conditions, byTaint)
			deleted(w, time.Second, 1)
		}, "the node a does not answer"},
		"a person has tainted its node": {func(w *world) {
			w.pod.Status.Conditions = append(w.pod.Status.Conditions, byTaint)
			deleted(w, 40*time.Second, 2)
		}, ""},
		"a person has tainted its node, and kubelet is about to see that": {func(w *world) {
			w.pod.Status.Conditions = append(w.pod.Status.Conditions, byTaint)
			deleted(w, 5*time.Second, 1)
		}, ""},
		"its node is drained, and the guest takes its time": {func(w *world) {
			w.unready(time.Second)
			w.pod.Status.Conditions = append(w.pod.Status.Conditions, byEviction)
			deleted(w, 40*time.Second, 2)
		}, ""},
		"it was not ready when its node went": {func(w *world) {
			w.unready(time.Minute)
			w.pod.Status.Conditions = append(w.pod.Status.Conditions, byTaint)
			deleted(w, 16*time.Second, 1)
		}, "the node a does not confirm that the Pod keelson-"},
		"its kubelet reports no generations":     {func(w *world) { deleted(w, 40*time.Second, 0) }, ""},
		"its grace period is over":               {func(w *world) { deleted(w, 80*time.Second, 2) }, ""},
		"its grace period is over for some time": {func(w *world) { deleted(w, 91*time.Second, 2) }, "the node a does not confirm"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			test.change(w)
			lost := isLost(w.pod, w.now)
			if lost != (test.says != "") || lost && !strings.HasPrefix(lostNode(w.pod), test.says) {
				t.Errorf("lost: %t; %s", lost, lostNode(w.pod))
			}
		})
	}
}

// A node that does not answer, and answers again, has the same run of the machine.
func TestNodeIsLostAndBack(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	machine := c.running()
	before := c.until(machine, "it is ready", func(s backend.Server) bool { return s.Agent == backend.AgentConnected })
	write := func(ready corev1.ConditionStatus) {
		t.Helper()
		pods := c.api.CoreV1().Pods(machine.Namespace)
		pod, err := pods.Get(t.Context(), objectName(machine.UID), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		// The simulated kubelet looks at the first one.
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: ready}}
		if _, err := pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	write(corev1.ConditionFalse) // as the node lifecycle controller does
	lost := c.until(machine, "it is unknown", func(s backend.Server) bool { return s.State == backend.StateUnknown })
	if !strings.HasPrefix(lost.Message, "the node "+nodeName+" does not answer. ") || lost.Run != before.Run || lost.Task != backend.TaskNone {
		t.Errorf("while the node is lost: %+v", lost)
	}
	write(corev1.ConditionTrue) // as kubelet does
	if after := c.until(machine, "it runs", isRunning); after.Run != before.Run {
		t.Errorf("before run %s, after run %s", before.Run, after.Run)
	}
}
