package virtualmachine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/fake"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// gather returns the values of the metrics of a collector.
func gather(t *testing.T, collector prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.Metric {
			var labels []string
			for _, label := range metric.Label {
				labels = append(labels, label.GetValue())
			}
			name := strings.TrimPrefix(family.GetName(), "keelson_virtualmachine_")
			values[name+" "+strings.Join(labels, "/")] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
		}
	}
	return values
}

// scrape collects from one collector, not from the active one.
type scrape struct{ *collector }

func (scrape) Describe(descs chan<- *prometheus.Desc)       { delegatingCollector{}.Describe(descs) }
func (s scrape) Collect(collected chan<- prometheus.Metric) { s.collect(collected) }

// retainer has retained disks, two of them of machines with the same name.
type retainer struct{ *fake.Driver }

func (retainer) Retained(context.Context) ([]backend.RetainedDisk, error) {
	gone := backend.RetainedDisk{Namespace: "default", Name: "gone", AllocatedBytes: 2, VirtualBytes: 100}
	again := gone
	again.AllocatedBytes = 3
	return []backend.RetainedDisk{gone, again}, nil
}

// Networks has a machine of the test and one of another cluster.
func (retainer) Networks(context.Context) ([]backend.Network, error) {
	counted := backend.NetworkMachine{
		UID: newVM().UID, Name: newVM().Name, ReceivedBytes: 1, TransmittedBytes: 2, ReceivedPackets: 3, TransmittedPackets: 4, DroppedPackets: 5, Connections: 6,
	}
	other := counted
	other.UID = "elsewhere"
	return []backend.Network{{Namespace: "default", Machines: []backend.NetworkMachine{counted, other}}}, nil
}

// List has each server also in a namespace where somebody claims its UID, and twice, as if two drivers had it.
func (r retainer) List(ctx context.Context) ([]backend.Server, error) {
	servers, err := r.Driver.List(ctx)
	for _, server := range slices.Clone(servers) {
		forged := server
		forged.Namespace = "attacker"
		servers = append(servers, forged, server)
	}
	return servers, err
}

func (retainer) DiskUsage(context.Context) (map[types.UID]backend.DiskUsage, error) {
	return map[types.UID]backend.DiskUsage{"vm-uid": {AllocatedBytes: 1, VirtualBytes: 2}, "elsewhere": {AllocatedBytes: 3, VirtualBytes: 4}}, nil
}

func TestMetricsOfMachines(t *testing.T) {
	on := newVM(func(vm *v1alpha1.VirtualMachine) {
		vm.Namespace, vm.Status.Phase, vm.Status.Restarts = "default", v1alpha1.PhaseActive, 3
		vm.Status.Server = &v1alpha1.Server{}
	})
	waiting := newVM(func(vm *v1alpha1.VirtualMachine) {
		vm.Namespace, vm.Name, vm.UID, vm.Status.Phase = "default", "other", "other-uid", v1alpha1.PhaseCreating
	})
	taken := &v1alpha1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "before"}, Spec: v1alpha1.VirtualMachineSnapshotSpec{VirtualMachineName: "web"},
		Status: v1alpha1.VirtualMachineSnapshotStatus{Size: ptr.To(resource.MustParse("4Ki"))},
	}
	pending := &v1alpha1.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pending"}}
	set := &v1alpha1.VirtualMachineSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: v1alpha1.VirtualMachineSetSpec{Replicas: ptr.To[int32](4)},
		Status: v1alpha1.VirtualMachineSetStatus{Replicas: 3, ReadyReplicas: 2, UpdatedReplicas: 1},
	}
	b := fake.New(fake.Options{})
	reader := clientfake.NewClientBuilder().WithScheme(harness.Scheme(t, v1alpha1.AddToScheme)).WithObjects(on, waiting, taken, pending, set).Build()
	drivers := NewDrivers([]string{fake.Name}, map[string]Opener{fake.Name: func() (Driver, error) { return b, nil }}, nil)
	drivers.slots[fake.Name].driver = retainer{b}
	for _, id := range []backend.Identity{
		{UID: on.UID, Namespace: "default", Name: on.Name},
		// A server of the same name, of another cluster or of a deleted object.
		{UID: "elsewhere", Namespace: "default", Name: on.Name},
	} {
		machine := backend.Machine{Identity: id, MemoryBytes: 1000}
		if err := errors.Join(b.Create(t.Context(), machine), b.Start(t.Context(), machine)); err != nil {
			t.Fatal(err)
		}
	}
	nap := backend.Identity{UID: waiting.UID, Namespace: "default", Name: waiting.Name}
	machine := backend.Machine{Identity: nap, MemoryBytes: 1000}
	if err := errors.Join(b.Create(t.Context(), machine), b.Start(t.Context(), machine), b.Sleep(t.Context(), nap, backend.SleepOptions{})); err != nil {
		t.Fatal(err)
	}
	disk := backend.VirtualDisk{DiskIdentity: backend.DiskIdentity{UID: "disk", Namespace: "default", Name: "data"}, SizeBytes: 1000}
	if err := b.EnsureDisk(t.Context(), disk); err != nil {
		t.Fatal(err)
	}
	got := gather(t, scrape{&collector{cache: reader, drivers: drivers}})
	label := fmt.Sprintf("%s/default", on.Name)
	want := map[string]float64{
		"machines fake/Active": 1, "machines fake/Creating": 1,
		"restarts_total " + label: 3, "restarts_total other/default": 0,
		"retained_disk_bytes gone/default": 5, "asleep fake": 1, "saved_memory_bytes other/default": 125, "saved_memory_bytes " + label: 0,
		"cpu_seconds_total " + label: 1, "resident_memory_bytes " + label: 100, "guest_memory_used_bytes " + label: 100,
		"network_received_bytes_total " + label: 1, "network_transmitted_bytes_total " + label: 2, "network_received_packets_total " + label: 3,
		"network_transmitted_packets_total " + label: 4, "network_dropped_packets_total " + label: 5, "network_connections " + label: 6,
		"disk_allocated_bytes " + label: 1, "disk_virtual_bytes " + label: 2,
		"keelson_virtualmachinesnapshot_size_bytes web/before/default": 4096,
		"keelson_virtualmachineset_replicas web/default":               4, "keelson_virtualmachineset_status_replicas web/default": 3,
		"keelson_virtualmachineset_status_replicas_ready web/default": 2, "keelson_virtualmachineset_status_replicas_updated web/default": 1,
		"keelson_virtualdisk_allocated_bytes data/default": 100, "keelson_virtualdisk_virtual_bytes data/default": 1000,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

// Each duration is observed once in the life of a machine.
func TestMetricsOfALife(t *testing.T) {
	const name = "metered" // the metrics are global, and other tests use other drivers
	for _, histogram := range []*prometheus.HistogramVec{createdSeconds, runningSeconds, readySeconds, sleepSeconds, wakeSeconds, stopSeconds, deleteSeconds} {
		histogram.DeleteLabelValues(name) // this test may have run in this process before
	}
	w := newFixture(t)
	w.Clock.SetTime(w.Clock.Now().Add(-2 * time.Second)) // behind the clock of the API server, which sets the creation timestamp
	w.drivers = NewDrivers([]string{name}, map[string]Opener{name: func() (Driver, error) { return w.backend, nil }}, w.Clock)
	w.Reconciler = NewReconciler(kube.NewBase(kind, w.Client, w.Client, w.Recorder, w.Clock), w.drivers)
	w.create()
	w.reconcileUntilStable()
	w.backend.Boot(w.uid())
	w.reconcileUntilStable()
	w.backend.Hold(backend.TaskSleep)
	w.Change(withAction(v1alpha1.ActionAsleep))
	w.reconcileUntilStable()
	w.Pass(3 * time.Second)
	w.backend.Release(backend.TaskSleep)
	w.reconcileUntilStable()
	w.Change(withAction(v1alpha1.ActionActive))
	w.reconcileUntilStable()
	w.Pass(2 * time.Second)
	w.backend.Boot(w.uid())
	w.reconcileUntilStable()
	w.backend.Hold(backend.TaskStop)
	w.Change(withAction(v1alpha1.ActionStopped))
	w.reconcileUntilStable()
	w.Pass(40 * time.Second)
	w.backend.Release(backend.TaskStop)
	w.reconcileUntilStable()
	w.Change(withAction(v1alpha1.ActionActive))
	w.reconcileUntilStable()
	w.backend.Boot(w.uid())
	w.reconcileUntilStable()
	w.Delete()
	w.reconcileUntilStable()
	for what, test := range map[string]struct {
		histogram *prometheus.HistogramVec
		least     float64
	}{
		"created": {createdSeconds, 0}, "running": {runningSeconds, 0}, "guest ready": {readySeconds, 0},
		"asleep": {sleepSeconds, 3}, "awake": {wakeSeconds, 2}, "stopped": {stopSeconds, 40}, "deleted": {deleteSeconds, 0},
	} {
		var metric dto.Metric
		if err := test.histogram.WithLabelValues(name).(prometheus.Metric).Write(&metric); err != nil {
			t.Fatal(err)
		}
		if got := metric.GetHistogram(); got.GetSampleCount() != 1 || got.GetSampleSum() < test.least {
			t.Errorf("%s: measured %d times, %v s in all", what, got.GetSampleCount(), got.GetSampleSum())
		}
		if buckets := metric.GetHistogram().Bucket; buckets[0].GetUpperBound() != 0.05 || buckets[len(buckets)-1].GetUpperBound() != 300 {
			t.Errorf("%s: the buckets are %v", what, buckets)
		}
	}
}

func TestResultOf(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("it: %w", err) }
	for want, err := range map[string]error{
		"ok": nil, "in_progress": backend.ErrInProgress, "not_found": wrap(backend.ErrNotFound), "invalid": wrap(backend.ErrInvalid),
		"unavailable": wrap(backend.ErrUnavailable), "error": errors.New("it"),
	} {
		if got := resultOf(err); got != want {
			t.Errorf("%v counts as %q, want %q", err, got, want)
		}
	}
}
