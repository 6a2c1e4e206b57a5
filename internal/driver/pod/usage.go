package pod

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// missingInterval is the interval of attempts in a cluster without the metrics API.
const missingInterval = 5 * time.Minute

// measured is the usage of a run, and the last one that the controller was notified of.
type measured struct {
	run             string
	usage, reported backend.Usage
}

// sampleUsage reads the usage of machines from the metrics API periodically, until ctx ends. A cluster may have no such API: then there
// is no usage.
func (d *Driver) sampleUsage(ctx context.Context) {
	ticker := time.NewTicker(backend.UsageInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		var pods corev1.PodList
		if d.cache.List(ctx, &pods, client.MatchingLabelsSelector{Selector: ofMachines}, client.UnsafeDisableDeepCopy) != nil || len(pods.Items) == 0 {
			continue // it ends, or there is nothing to measure
		}
		metrics, err := d.podMetrics(ctx)
		switch {
		case err == nil:
			d.measure(pods.Items, metrics)
			ticker.Reset(backend.UsageInterval)
		case meta.IsNoMatchError(err):
			ticker.Reset(missingInterval)
		}
	}
}

// podMetrics returns what the metrics API has of the Pods of machines, by their names.
func (d *Driver) podMetrics(ctx context.Context) (map[types.NamespacedName]metricsv1beta1.PodMetrics, error) {
	namespaces := d.namespaces
	if len(namespaces) == 0 {
		namespaces = []string{corev1.NamespaceAll}
	}
	all := map[types.NamespacedName]metricsv1beta1.PodMetrics{}
	for _, namespace := range namespaces {
		var list metricsv1beta1.PodMetricsList
		if err := d.client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: ofMachines}); err != nil {
			return nil, err
		}
		for i := range list.Items {
			all[client.ObjectKeyFromObject(&list.Items[i])] = list.Items[i]
		}
	}
	return all, nil
}

// measure replaces the usage of all machines, and notifies the controller of those that have changed much. It does not change the Pods,
// which are those of the cache.
func (d *Driver) measure(pods []corev1.Pod, metrics map[types.NamespacedName]metricsv1beta1.PodMetrics) {
	var changed []backend.Identity
	d.mu.Lock()
	before := d.usage
	d.usage = map[machineKey]*measured{}
	for i := range pods {
		pod := &pods[i]
		found, known := metrics[client.ObjectKeyFromObject(pod)]
		definition, readable := definitionOf(pod)
		if !readable || !isOn(pod) {
			continue
		}
		id, m := identityOf(pod), &measured{run: pod.Annotations[annotationRun]}
		last := before[keyOf(id)]
		if last == nil || last.run != m.run {
			last = &measured{run: m.run}
		}
		if !known { // the metrics of a Pod come late, and may have a gap
			d.usage[keyOf(id)] = last
			continue
		}
		m.usage, m.reported = usageIn(&found, definition.CPUs, definition.MemoryBytes, &last.usage), last.reported
		if last.usage.At.IsZero() || m.usage.IsFarFrom(&last.reported) {
			m.reported = m.usage
			changed = append(changed, id)
		}
		d.usage[keyOf(id)] = m
	}
	d.mu.Unlock()
	for _, id := range changed {
		d.notifyChange(id)
	}
}

// usageIn returns the usage of a machine in the metrics of its Pod, which has no other container. The metrics have a rate, so the
// processor time is that of the measurement before, last, and the time since then at this rate. Memory is that of QEMU, too.
func usageIn(metrics *metricsv1beta1.PodMetrics, cpus, memory int64, last *backend.Usage) backend.Usage {
	usage := backend.Usage{At: metrics.Timestamp.Time, CPUSeconds: last.CPUSeconds}
	rate := 0.0
	for _, c := range metrics.Containers {
		rate += c.Usage.Cpu().AsApproximateFloat64()
		usage.ResidentBytes += c.Usage.Memory().Value()
	}
	since := metrics.Window.Duration
	if !last.At.IsZero() {
		since = usage.At.Sub(last.At)
	}
	usage.CPUSeconds += rate * max(0, since.Seconds())
	usage.CPU = min(100, 100*rate/float64(max(cpus, 1)))
	usage.Memory = min(100, 100*float64(usage.ResidentBytes)/float64(max(memory, 1)))
	return usage
}

// usageOf returns the last measured usage of a server that runs; nil if there is none.
func (d *Driver) usageOf(server *backend.Server) *backend.Usage {
	d.mu.Lock()
	defer d.mu.Unlock()
	if m := d.usage[keyOf(server.Identity)]; m != nil && m.run == server.Run && !m.usage.At.IsZero() && server.IsOn() {
		usage := m.usage
		return &usage
	}
	return nil
}
