package virtualmachine

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
)

// buckets range from fractions of a second to minutes.
var buckets = []float64{0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300}

func newSeconds(name, help string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "keelson_virtualmachine_" + name + "_seconds", Help: help, Buckets: buckets,
	}, []string{"driver"})
}

var (
	createdSeconds = newSeconds("created", "Time from the creation of a VirtualMachine until its machine existed.")
	runningSeconds = newSeconds("running", "Time from the creation of a VirtualMachine until its machine first ran.")
	readySeconds   = newSeconds("guest_ready", "Time from the creation of a VirtualMachine until its guest first answered.")
	sleepSeconds   = newSeconds("sleep", "Time from the request to put a machine to sleep until it was asleep.")
	wakeSeconds    = newSeconds("wake", "Time from the request to wake a machine until its guest was ready.")
	stopSeconds    = newSeconds("stop", "Time from the request to stop a machine until it was off.")
	deleteSeconds  = newSeconds("delete", "Time from the deletion of a VirtualMachine until its machine was gone.")

	driverCalls = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "keelson_virtualmachine_driver_calls_total",
		Help: "Driver calls by result: ok, in_progress, not_found, invalid, unavailable or error.",
	}, []string{"driver", "call", "result"})
	guestResets = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "keelson_virtualmachine_guest_resets_total",
		Help: "Resets of guests that had said nothing since they were powered on.",
	}, []string{"driver"})
	orphanServers = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "keelson_virtualmachine_orphans",
		Help: "Machines without a VirtualMachine at the last check.",
	}, []string{"driver"})

	machinesDesc = prometheus.NewDesc("keelson_virtualmachine_machines",
		"VirtualMachines by phase and driver.", []string{"driver", "phase"}, nil)
	asleepDesc = prometheus.NewDesc("keelson_virtualmachine_asleep",
		"Machines that are asleep, by driver.", []string{"driver"}, nil)
	savedDesc     = newMachineDesc("saved_memory_bytes", "Disk space of the host used by the saved memory of the machine; 0 unless it is asleep.")
	restartsDesc  = newMachineDesc("restarts_total", "Restarts of the machine after it stopped by itself.")
	cpuDesc       = newMachineDesc("cpu_seconds_total", "CPU time of the machine since it was powered on.")
	residentDesc  = newMachineDesc("resident_memory_bytes", "Memory of the host that the machine uses.")
	retainedDesc  = newMachineDesc("retained_disk_bytes", "Disk space used by retained disks of deleted machines.")
	allocatedDesc = newMachineDesc("disk_allocated_bytes", "Disk space of the host used by all disks of the machine, including VirtualDisks.")
	virtualDesc   = newMachineDesc("disk_virtual_bytes", "Size of all disks of the machine, including VirtualDisks, as seen by the guest.")
	// The disks of VirtualDisks, whether a machine has them or not.
	vdiskAllocatedDesc = prometheus.NewDesc("keelson_virtualdisk_allocated_bytes", "Disk space of the host used by the VirtualDisk.", []string{"namespace", "name"}, nil)
	vdiskVirtualDesc   = prometheus.NewDesc("keelson_virtualdisk_virtual_bytes", "Size of the VirtualDisk, as seen by a guest.", []string{"namespace", "name"}, nil)
	// The label machine is the VirtualMachine that the snapshot was taken of.
	snapshotDesc = prometheus.NewDesc("keelson_virtualmachinesnapshot_size_bytes",
		"Disk space of the host used by the VirtualMachineSnapshot, without the image of its machine.", []string{"namespace", "name", "machine"}, nil)
	// The names are those of kube-state-metrics for StatefulSet, with another prefix.
	setWantedDesc  = newSetDesc("replicas", "Desired machines of the VirtualMachineSet.")
	setDesc        = newSetDesc("status_replicas", "Machines of the VirtualMachineSet, without those that are being deleted.")
	setReadyDesc   = newSetDesc("status_replicas_ready", "Machines of the VirtualMachineSet that are ready.")
	setUpdatedDesc = newSetDesc("status_replicas_updated", "Machines of the VirtualMachineSet that have the current template and need no restart for it.")

	guestDesc = newMachineDesc("guest_memory_used_bytes", "Memory used in the guest, as reported by it.")

	receivedDesc       = newMachineDesc("network_received_bytes_total", "Bytes that the guest received since its network was started.")
	transmittedDesc    = newMachineDesc("network_transmitted_bytes_total", "Bytes that the guest sent since its network was started.")
	receivedPackets    = newMachineDesc("network_received_packets_total", "Packets that the guest received since its network was started.")
	transmittedPackets = newMachineDesc("network_transmitted_packets_total", "Packets that the guest sent since its network was started.")
	droppedDesc        = newMachineDesc("network_dropped_packets_total", "Dropped packets and refused connections of the guest since its network was started.")
	connectionsDesc    = newMachineDesc("network_connections", "Open connections of the guest with other networks and through its ports.")
)

// networkDescs are the metrics of networks.
var networkDescs = []*prometheus.Desc{receivedDesc, transmittedDesc, receivedPackets, transmittedPackets, droppedDesc, connectionsDesc}

func newMachineDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("keelson_virtualmachine_"+name, help, []string{"namespace", "name"}, nil)
}

func newSetDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("keelson_virtualmachineset_"+name, help, []string{"namespace", "name"}, nil)
}

// activeCollector is the collector of the manager that was added last.
var activeCollector atomic.Pointer[collector]

// registerMetrics registers the metrics in the global registry of the process.
func registerMetrics(cache client.Reader, drivers *Drivers) {
	activeCollector.Store(&collector{cache: cache, drivers: drivers})
	registerOnce()
}

// collectors has all metrics of this controller; docs/reference/metrics.md describes them.
var collectors = []prometheus.Collector{
	createdSeconds, runningSeconds, readySeconds, sleepSeconds, wakeSeconds, stopSeconds, deleteSeconds, driverCalls, guestResets, orphanServers, delegatingCollector{},
}

var registerOnce = sync.OnceFunc(func() { metrics.Registry.MustRegister(collectors...) })

// delegatingCollector delegates a scrape to the active collector.
type delegatingCollector struct{}

// Describe implements prometheus.Collector.
func (delegatingCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range append([]*prometheus.Desc{machinesDesc, asleepDesc, savedDesc, restartsDesc, cpuDesc, residentDesc, guestDesc, retainedDesc, allocatedDesc, virtualDesc, vdiskAllocatedDesc, vdiskVirtualDesc, snapshotDesc,
		setWantedDesc, setDesc, setReadyDesc, setUpdatedDesc}, networkDescs...) {
		descs <- desc
	}
}

// Collect implements prometheus.Collector.
func (delegatingCollector) Collect(collected chan<- prometheus.Metric) {
	if c := activeCollector.Load(); c != nil {
		c.collect(collected)
	}
}

// collector reads machines from the cache and servers from the drivers.
type collector struct {
	cache   client.Reader
	drivers *Drivers
}

// scrapeTimeout limits a scrape.
const scrapeTimeout = 5 * time.Second

func (c *collector) collect(collected chan<- prometheus.Metric) {
	//nolint:forbidigo // a scrape has no context, and this one has a timeout
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	var vms v1alpha1.VirtualMachineList
	if err := c.cache.List(ctx, &vms, client.UnsafeDisableDeepCopy); err != nil {
		return // the cache has not started
	}
	count := map[[2]string]int{}
	machines := map[types.UID]*v1alpha1.VirtualMachine{}
	for i := range vms.Items {
		vm := &vms.Items[i]
		driver := cmp.Or(recordedDriver(vm), vm.Spec.Driver, c.drivers.Default())
		count[[2]string{driver, string(vm.Status.Phase)}]++
		machines[vm.UID] = vm
		collected <- prometheus.MustNewConstMetric(restartsDesc, prometheus.CounterValue, float64(vm.Status.Restarts), vm.Namespace, vm.Name)
	}
	for labels, n := range count {
		collected <- prometheus.MustNewConstMetric(machinesDesc, prometheus.GaugeValue, float64(n), labels[:]...)
	}
	c.collectRetained(ctx, collected)
	c.collectDisks(ctx, collected)
	c.collectSnapshots(ctx, collected)
	c.collectSets(ctx, collected)
	c.collectNetworks(ctx, machines, collected)
	reported := map[types.UID]bool{}
	for _, driver := range c.drivers.alreadyOpen() {
		servers, err := driver.List(ctx)
		if err != nil {
			continue
		}
		// Another server may have the same namespace and name: that of another cluster, or of a deleted object. A second metric with the
		// same labels would make all metrics unreadable.
		servers = slices.DeleteFunc(servers, func(server backend.Server) bool {
			vm := machines[server.UID]
			isOwn := vm != nil && vm.Namespace == server.Namespace && vm.Name == server.Name && !reported[server.UID]
			reported[server.UID] = reported[server.UID] || isOwn
			return !isOwn
		})
		collectAsleep(driver.Name(), servers, collected)
		disks := measureDisks(ctx, driver)
		for i := range servers {
			if usage, found := disks[servers[i].UID]; found {
				labels := []string{servers[i].Namespace, servers[i].Name}
				collected <- prometheus.MustNewConstMetric(allocatedDesc, prometheus.GaugeValue, float64(usage.AllocatedBytes), labels...)
				collected <- prometheus.MustNewConstMetric(virtualDesc, prometheus.GaugeValue, float64(usage.VirtualBytes), labels...)
			}
			if usage := servers[i].Usage; usage != nil {
				labels := []string{servers[i].Namespace, servers[i].Name}
				collected <- prometheus.MustNewConstMetric(cpuDesc, prometheus.CounterValue, usage.CPUSeconds, labels...)
				collected <- prometheus.MustNewConstMetric(residentDesc, prometheus.GaugeValue, float64(usage.ResidentBytes), labels...)
				collected <- prometheus.MustNewConstMetric(guestDesc, prometheus.GaugeValue, float64(usage.GuestBytes), labels...)
			}
		}
	}
}

// collectSets reports the numbers of machines of VirtualMachineSets.
func (c *collector) collectSets(ctx context.Context, collected chan<- prometheus.Metric) {
	var sets v1alpha1.VirtualMachineSetList
	if err := c.cache.List(ctx, &sets, client.UnsafeDisableDeepCopy); err != nil {
		return // the cache has stopped
	}
	for i := range sets.Items {
		set := &sets.Items[i]
		for desc, n := range map[*prometheus.Desc]int32{
			setWantedDesc: ptr.Deref(set.Spec.Replicas, 1), setDesc: set.Status.Replicas,
			setReadyDesc: set.Status.ReadyReplicas, setUpdatedDesc: set.Status.UpdatedReplicas,
		} {
			collected <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), set.Namespace, set.Name)
		}
	}
}

// collectAsleep reports the saved memory of the machines of a driver, and how many are asleep.
func collectAsleep(driver string, servers []backend.Server, collected chan<- prometheus.Metric) {
	asleep := 0
	for i := range servers {
		server := &servers[i]
		if server.State == backend.StateAsleep {
			asleep++
		}
		collected <- prometheus.MustNewConstMetric(savedDesc, prometheus.GaugeValue, float64(server.SavedBytes), server.Namespace, server.Name)
	}
	collected <- prometheus.MustNewConstMetric(asleepDesc, prometheus.GaugeValue, float64(asleep), driver)
}

// measureDisks returns the usage of disks by server, nil if the driver cannot measure it.
func measureDisks(ctx context.Context, driver Driver) map[types.UID]backend.DiskUsage {
	meter, ok := driver.(backend.DiskMeter)
	if !ok {
		return nil
	}
	usage, err := meter.DiskUsage(ctx)
	if err != nil {
		return nil // the next scrape tries again
	}
	return usage
}

// collectRetained reports the size of retained disks, summed over machines with the same namespace and name.
func (c *collector) collectRetained(ctx context.Context, collected chan<- prometheus.Metric) {
	sizes := map[[2]string]int64{}
	for _, driver := range c.drivers.alreadyOpen() {
		retainer, ok := driver.(backend.Retainer)
		if !ok {
			continue
		}
		disks, err := retainer.Retained(ctx)
		if err != nil {
			continue // `keelson status` shows the error
		}
		for _, disk := range disks {
			sizes[[2]string{disk.Namespace, disk.Name}] += disk.AllocatedBytes
		}
	}
	for labels, size := range sizes {
		collected <- prometheus.MustNewConstMetric(retainedDesc, prometheus.GaugeValue, float64(size), labels[:]...)
	}
}

// collectNetworks reports what the networks count for machines.
func (c *collector) collectNetworks(ctx context.Context, machines map[types.UID]*v1alpha1.VirtualMachine, collected chan<- prometheus.Metric) {
	for _, driver := range c.drivers.alreadyOpen() {
		networker, ok := driver.(backend.Networker)
		if !ok {
			continue
		}
		networks, err := networker.Networks(ctx)
		if err != nil {
			continue // `keelson status` shows the error
		}
		for _, network := range networks {
			for _, machine := range network.Machines {
				vm := machines[machine.UID]
				if vm == nil {
					continue
				}
				for desc, value := range map[*prometheus.Desc]uint64{
					receivedDesc: machine.ReceivedBytes, transmittedDesc: machine.TransmittedBytes, receivedPackets: machine.ReceivedPackets,
					transmittedPackets: machine.TransmittedPackets, droppedDesc: machine.DroppedPackets,
				} {
					collected <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(value), vm.Namespace, vm.Name)
				}
				collected <- prometheus.MustNewConstMetric(connectionsDesc, prometheus.GaugeValue, float64(machine.Connections), vm.Namespace, vm.Name)
			}
		}
	}
}

// becameTrue reports whether a condition has become true.
func becameTrue(before, after *v1alpha1.VirtualMachine, condition string) bool {
	was, is := kube.ConditionTransition(before.Status.Conditions, after.Status.Conditions, condition)
	return was.Status != metav1.ConditionTrue && is.Status == metav1.ConditionTrue
}

// recordCreated records when the server was first observed: the status may be written later.
func (r *Reconciler) recordCreated(before, after *v1alpha1.VirtualMachine) {
	if !becameTrue(before, after, v1alpha1.ConditionCreated) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, found := r.created[after.UID]; !found {
		r.created[after.UID] = r.Clock.Now()
	}
}

// isAsleep reports whether the status says that the machine is asleep.
func isAsleep(vm *v1alpha1.VirtualMachine) bool {
	return vm.Status.Server != nil && vm.Status.Server.State == v1alpha1.ServerAsleep
}

// recordDurations observes the metrics of durations.
func (r *Reconciler) recordDurations(before, after *v1alpha1.VirtualMachine, observed observation) {
	now := r.Clock.Now()
	age := kube.Seconds(after.CreationTimestamp.Time, now)
	r.mu.Lock()
	if becameTrue(before, after, v1alpha1.ConditionCreated) {
		createdSeconds.WithLabelValues(observed.name).Observe(kube.Seconds(after.CreationTimestamp.Time, r.created[after.UID]))
		delete(r.created, after.UID)
	}
	first := after.Status.Restarts == 0 && after.Status.LastRestartRequestedAt == nil
	ran := func(vm *v1alpha1.VirtualMachine) bool { return vm.Status.Server != nil && vm.Status.Server.Run != "" }
	if first && !ran(before) && ran(after) {
		runningSeconds.WithLabelValues(observed.name).Observe(age)
		r.booting[after.UID] = true
	}
	if becameTrue(before, after, v1alpha1.ConditionGuestReady) && r.booting[after.UID] {
		readySeconds.WithLabelValues(observed.name).Observe(age)
		delete(r.booting, after.UID)
	}
	if begun, found := r.wakes[after.UID]; found && becameTrue(before, after, v1alpha1.ConditionGuestReady) {
		wakeSeconds.WithLabelValues(observed.name).Observe(kube.Seconds(begun, now))
		delete(r.wakes, after.UID)
	}
	if begun, found := r.sleeps[after.UID]; found && isAsleep(after) {
		sleepSeconds.WithLabelValues(observed.name).Observe(kube.Seconds(begun, now))
		delete(r.sleeps, after.UID)
	}
	r.mu.Unlock()
	if observed.server == nil || !observed.server.IsOn() {
		r.mu.Lock()
		begun, found := r.stops[after.UID]
		delete(r.stops, after.UID)
		r.mu.Unlock()
		if found {
			stopSeconds.WithLabelValues(observed.name).Observe(kube.Seconds(begun, now))
		}
	}
}
