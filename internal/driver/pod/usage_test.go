package pod

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// metricsAt returns the metrics of a Pod with one container.
func metricsAt(at time.Time, cpu, memory string) metricsv1beta1.PodMetrics {
	return metricsv1beta1.PodMetrics{
		Timestamp: metav1.NewTime(at), Window: metav1.Duration{Duration: 10 * time.Second},
		Containers: []metricsv1beta1.ContainerMetrics{{Name: container, Usage: corev1.ResourceList{
			corev1.ResourceCPU: *quantity(cpu), corev1.ResourceMemory: *quantity(memory),
		}}},
	}
}

func TestUsageIn(t *testing.T) {
	first := metricsAt(noon, "500m", "64Mi")
	usage := usageIn(&first, 2, 128<<20, &backend.Usage{})
	want := backend.Usage{CPU: 25, Memory: 50, CPUSeconds: 5, ResidentBytes: 64 << 20, At: noon}
	if diff := cmp.Diff(want, usage); diff != "" {
		t.Errorf("the first measurement (-want +got):\n%s", diff)
	}
	next := metricsAt(noon.Add(20*time.Second), "3", "256Mi")
	usage = usageIn(&next, 2, 128<<20, &usage)
	want = backend.Usage{CPU: 100, Memory: 100, CPUSeconds: 65, ResidentBytes: 256 << 20, At: noon.Add(20 * time.Second)}
	if diff := cmp.Diff(want, usage); diff != "" {
		t.Errorf("with the threads of QEMU (-want +got):\n%s", diff)
	}
}

// The controller is notified of the first measurement of a run, and of changes of at least 5 percentage points since it was notified.
func TestMeasure(t *testing.T) {
	machine := newMachine()
	notified := 0
	d := &Driver{notify: func(backend.Identity) { notified++ }}
	at := noon
	look := func(run, cpu string, state corev1.ContainerState) {
		t.Helper()
		pod := newPod(&record{Started: &machine, Run: run, SeedSum: "sum"}, images{}, emulated, false)
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: container, State: state}}
		at = at.Add(15 * time.Second)
		d.measure([]corev1.Pod{*pod}, map[types.NamespacedName]metricsv1beta1.PodMetrics{client.ObjectKeyFromObject(pod): metricsAt(at, cpu, "64Mi")})
	}
	on := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	for _, step := range []struct {
		run, cpu string
		notified int
	}{{"a", "200m", 1}, {"a", "260m", 1}, {"a", "320m", 2}, {"a", "240m", 2}, {"b", "240m", 3}} {
		if look(step.run, step.cpu, on); notified != step.notified {
			t.Errorf("run %s with %s: notified %d times, want %d", step.run, step.cpu, notified, step.notified)
		}
	}
	server := backend.Server{Identity: machine.Identity, Run: "b", State: backend.StateRunning}
	if usage := d.usageOf(&server); usage == nil || usage.CPU != 12 {
		t.Errorf("its usage is %+v", usage)
	}
	pod := newPod(&record{Started: &machine, Run: "b", SeedSum: "sum"}, images{}, emulated, false)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: container, State: on}}
	d.measure([]corev1.Pod{*pod}, nil)
	if usage := d.usageOf(&server); usage == nil || usage.CPU != 12 {
		t.Errorf("after a gap in the metrics, its usage is %+v", usage)
	}
	server.Run = "c"
	if usage := d.usageOf(&server); usage != nil {
		t.Errorf("the usage of its next run is %+v", usage)
	}
	look("b", "100m", corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}})
	if len(d.usage) > 0 {
		t.Errorf("the usage of a run that has ended: %+v", d.usage)
	}
}
