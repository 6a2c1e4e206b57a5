package pod

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/testing/drivertest"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func TestContract(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) drivertest.Backend {
		c := newCluster(t)
		return drivertest.Backend{Open: c.open, Machine: c.machine, Kill: c.kill, Leftovers: c.leftovers, Apart: true}
	})
}

func TestLostSecretIsWrittenAgain(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	machine := c.machine(uuid.NewUUID())
	before := c.runs(machine)
	c.loseRecord(machine.Identity)
	lost := c.until(machine, "the Secret is lost", func(s backend.Server) bool { return s.Hash == "" })
	if lost.State != backend.StateRunning || lost.Identity != machine.Identity {
		t.Errorf("without its Secret, it is %+v", lost)
	}
	c.must("Reconfigure", c.driver.Reconfigure(t.Context(), machine))
	if after := c.until(machine, "the Secret is back", func(s backend.Server) bool { return s.Hash == machine.Hash }); after.Run != before.Run {
		t.Errorf("before run %s, after run %s", before.Run, after.Run)
	}
}

// A manager that ends after it has paused a machine, and before it has recorded that, is followed by one that pauses it again.
func TestPauseWithoutRecord(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	machine := c.running()
	ctx, cancel := context.WithCancel(t.Context())
	step = func(name string) {
		if name == "processors changed" {
			cancel()
		}
	}
	defer func() { step = func(string) {} }()
	if err := c.driver.Pause(ctx, machine.Identity); err == nil {
		t.Error("it is paused, and that is recorded")
	}
	if server, err := c.driver.Observe(t.Context(), machine.Identity); err != nil || server.State != backend.StateRunning {
		t.Errorf("without the record: %+v, %v", server, err)
	}
	c.must("Pause", c.driver.Pause(t.Context(), machine.Identity))
	c.until(machine, "it is paused", func(s backend.Server) bool { return s.State == backend.StatePaused })
}

// TestNeverTwice starts a machine whose Pod is being deleted, and is not confirmed to have ended.
func TestNeverTwice(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	machine := c.running()
	pods := c.api.CoreV1().Pods(machine.Namespace)
	// With it, the simulated kubelet does not answer.
	patch := `{"metadata":{"finalizers":["example.com/node"]}}`
	held, err := pods.Patch(t.Context(), objectName(machine.UID), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.must("Stop", c.driver.Stop(t.Context(), machine.Identity, 0))
	for range 5 {
		if err := c.driver.Start(t.Context(), machine); err != nil && !errors.Is(err, backend.ErrInProgress) {
			t.Errorf("Start: %v", err)
		}
		if err := c.driver.Delete(t.Context(), machine.Identity, backend.DeleteOptions{}); !errors.Is(err, backend.ErrInProgress) {
			t.Errorf("Delete while the Pod exists: %v", err)
		}
		if pod, err := pods.Get(t.Context(), held.Name, metav1.GetOptions{}); err != nil || pod.UID != held.UID {
			t.Fatalf("the Pod was replaced: %v", err)
		}
	}
	if _, err := pods.Patch(t.Context(), held.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.remove(machine)
}

func TestRefusedPodIsAFailedStart(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	machine := c.machine(uuid.NewUUID())
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: *quantity("0")}}}
	quotas := c.api.CoreV1().ResourceQuotas(machine.Namespace)
	created, err := quotas.Create(t.Context(), quota, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	created.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: corev1.ResourceList{corev1.ResourcePods: *quantity("0")}}
	if _, err := quotas.UpdateStatus(t.Context(), created, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.must("Create", c.driver.Create(t.Context(), machine))
	harness.Eventually(t, "the quota is known to the API server", func() bool {
		c.must("Start", c.driver.Start(t.Context(), machine))
		server, err := c.driver.Observe(t.Context(), machine.Identity)
		if err == nil && server.Ended == nil {
			c.must("Stop", c.driver.Stop(t.Context(), machine.Identity, 0))
		}
		return err == nil && server.Ended != nil && server.Ended.Cause == backend.CauseStartFailed && fmt.Sprint(server.Ended.Message) != ""
	})
	c.remove(machine)
}

// TestClaimThatCannotGrow starts a machine whose root disk has to grow, with a claim of a class that cannot expand.
func TestClaimThatCannotGrow(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	machine := c.machine(uuid.NewUUID())
	machine.DiskBytes, machine.Pod.StorageClassName = 1<<30, "" // volumes without a class do not grow
	c.must("Create", c.driver.Create(t.Context(), machine))
	machine.DiskBytes, machine.Hash = 2<<30, "2"
	c.must("Reconfigure", c.driver.Reconfigure(t.Context(), machine))
	c.must("Start", c.driver.Start(t.Context(), machine))
	server := c.until(machine, "it runs", isRunning)
	if !slices.Equal(server.Pending, []string{fieldRootDisk}) || !strings.Contains(server.PendingReason, objectName(machine.UID)) || server.Hash != "2" {
		t.Errorf("it runs with the old size, and pending are %q because of %q", server.Pending, server.PendingReason)
	}
	if definition := c.definition(machine); definition.DiskBytes != 1<<30 {
		t.Errorf("the Pod has a root disk of %d bytes", definition.DiskBytes)
	}
	machine.DiskBytes, machine.Hash = 1<<30, "3"
	c.must("Reconfigure", c.driver.Reconfigure(t.Context(), machine))
	c.until(machine, "nothing is pending", func(s backend.Server) bool { return s.Hash == "3" && len(s.Pending) == 0 && s.PendingReason == "" })
	c.remove(machine)
}

// TestPodOfATemplate has the API server check a Pod with a template, and finds a change of it that waits for a restart.
func TestPodOfATemplate(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	machine := c.machine(uuid.NewUUID())
	machine.Pod.Template = &v1alpha1.PodTemplate{
		Metadata: v1alpha1.PodMetadata{Labels: map[string]string{"app": "shop"}},
		Spec: v1alpha1.PodScheduling{
			NodeSelector: map[string]string{"disk": "ssd"}, PriorityClassName: "system-node-critical",
			Tolerations: []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}},
			TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.ScheduleAnyway,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "shop"}},
			}},
		},
	}
	c.runs(machine)
	pod := c.pod(machine)
	if pod.Labels["app"] != "shop" || pod.Spec.NodeSelector["disk"] != "ssd" || len(pod.Spec.TopologySpreadConstraints) != 1 || pod.Spec.Priority == nil || *pod.Spec.Priority == 0 {
		t.Errorf("the Pod has %+v, %+v", pod.Labels, pod.Spec)
	}
	machine.Pod.Template, machine.Hash = nil, "2"
	c.must("Reconfigure", c.driver.Reconfigure(t.Context(), machine))
	c.until(machine, "the change is pending", func(s backend.Server) bool { return slices.Equal(s.Pending, []string{"pod.template"}) })
	c.remove(machine)
}

// TestRootDisk checks the claim of a root disk: it grows, and is deleted with the machine or retained.
func TestRootDisk(t *testing.T) {
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprintf("retain=%t", keep), func(t *testing.T) {
			c := newCluster(t)
			c.open(t)
			machine := c.machine(uuid.NewUUID())
			machine.DiskBytes = 1 << 30
			c.must("Create", c.driver.Create(t.Context(), machine))
			claims := c.api.CoreV1().PersistentVolumeClaims(machine.Namespace)
			claim, err := claims.Get(t.Context(), objectName(machine.UID), metav1.GetOptions{})
			if err != nil || claim.Spec.Resources.Requests.Storage().Value() < machine.DiskBytes {
				t.Fatalf("the claim: %+v, %v", claim, err)
			}
			c.must("Start", c.driver.Start(t.Context(), machine))
			c.until(machine, "it runs", isRunning)
			harness.Eventually(t, "it is deleted", func() bool {
				return c.driver.Delete(t.Context(), machine.Identity, backend.DeleteOptions{KeepDisk: keep}) == nil
			})
			_, err = claims.Get(t.Context(), claim.Name, metav1.GetOptions{})
			if keep != (err == nil) {
				t.Errorf("after the deletion, the claim: %v", err)
			}
		})
	}
}
