package pod

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func imageFromAddress(machine *backend.Machine) {
	machine.Image, machine.DiskBytes = &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{URL: "http://images.example/disk", Sha256: strings.Repeat("a", 64)}, Agent: ptr.To(false)}, 1<<30
}

// TestImportProgress follows the import of an image through its launcher, also as the next manager, and stops a machine meanwhile.
func TestImportProgress(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	c.launchers.change(func(s *simulated) { s.guest.Progress = "the image is being downloaded, 40 % of 100 MiB" })
	machine := c.machine(uuid.NewUUID())
	imageFromAddress(&machine)
	c.must("Create", c.driver.Create(t.Context(), machine))
	c.must("Start", c.driver.Start(t.Context(), machine))
	tells := func(text string) func(backend.Server) bool {
		return func(s backend.Server) bool {
			return isRunning(s) && s.Agent == backend.AgentWaiting && strings.Contains(s.Progress, text)
		}
	}
	c.until(machine, "its progress is 40 %", tells("40 %"))
	c.open(t)
	c.until(machine, "the next manager finds the progress", tells("40 %"))
	c.launchers.change(func(s *simulated) { s.guest.Progress = "the image is being converted" })
	c.until(machine, "it has a later progress", tells("converted"))
	c.launchers.change(func(s *simulated) { s.guest.Progress = "" })
	c.until(machine, "it runs", func(s backend.Server) bool { return isRunning(s) && s.Agent == backend.AgentNone && s.Progress == "" })
	c.stop(machine)
	c.launchers.change(func(s *simulated) { s.guest.Progress = "the image is being downloaded, 60 % of 100 MiB" })
	c.must("Start", c.driver.Start(t.Context(), machine))
	c.until(machine, "its progress is 60 %", tells("60 %"))
	c.must("Stop", c.driver.Stop(t.Context(), machine.Identity, 0))
	c.until(machine, "it is off", func(s backend.Server) bool { return s.State == backend.StateStopped && s.Progress == "" })
	c.remove(machine)
	harness.Eventually(t, "no launcher is asked", func() bool {
		c.driver.mu.Lock()
		defer c.driver.mu.Unlock()
		return len(c.driver.guests) == 0
	})
}

func TestPodOfAnAddress(t *testing.T) {
	machine := newMachine()
	imageFromAddress(&machine)
	if err := Validate(&machine); err != nil {
		t.Error(err)
	}
	pod := newPod(&record{Started: &machine, Run: "run", SeedSum: "sum"}, images{launcher: "launcher:v1", guest: "guest:v1"}, emulated, false)
	for _, volume := range pod.Spec.Volumes {
		if volume.Image != nil {
			t.Errorf("the Pod has the image volume %s", volume.Image.Reference)
		}
	}
	definition, _ := definitionOf(pod)
	if definition.ImageURL != machine.Image.URL || definition.ImageSHA256 != machine.Image.Sha256 || !definition.NoAgent || definition.Image || !definition.OwnSystem() {
		t.Errorf("the definition %+v", definition)
	}
}

func run(pod *corev1.Pod, ready corev1.ConditionStatus) {
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: container, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}}}
}
