package snapshot

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
)

// current is the reader of the running manager. A process may run several managers one after the other.
var current atomic.Pointer[client.Reader]

var registerOnce = sync.OnceFunc(func() { metrics.Registry.MustRegister(collector{}) })

// register adds the metrics to the registry. From now on the collector uses reader.
func register(reader client.Reader) {
	registerOnce()
	current.Store(&reader)
}

// collector reads the sizes and the conditions of ClusterSnapshots at each scrape.
type collector struct{}

var (
	sizeDesc       = prometheus.NewDesc("keelson_clustersnapshot_size_bytes", "Size of a ClusterSnapshot on the host.", []string{"name", "cluster"}, nil)
	conditionsDesc = prometheus.NewDesc("keelson_clustersnapshot_conditions", "ClusterSnapshots by condition, its status and its reason.",
		[]string{"condition", "status", "reason"}, nil)
)

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- sizeDesc
	ch <- conditionsDesc
}

// Collect implements prometheus.Collector.
func (collector) Collect(ch chan<- prometheus.Metric) {
	used := current.Load()
	if used == nil {
		return
	}
	reader := *used
	//nolint:forbidigo // a collector is called without a context; the cache answers at once
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var snapshots v1alpha1.ClusterSnapshotList
	if reader.List(ctx, &snapshots, client.UnsafeDisableDeepCopy) != nil {
		return // the cache has not started or has stopped
	}
	conditions := map[[3]string]int{}
	for i := range snapshots.Items {
		s := &snapshots.Items[i]
		if s.Status.Size != nil {
			ch <- prometheus.MustNewConstMetric(sizeDesc, prometheus.GaugeValue, float64(s.Status.Size.Value()), s.Name, s.Spec.ClusterName)
		}
		for _, c := range s.Status.Conditions {
			conditions[[3]string{c.Type, string(c.Status), c.Reason}]++
		}
	}
	for labels, count := range conditions {
		ch <- prometheus.MustNewConstMetric(conditionsDesc, prometheus.GaugeValue, float64(count), labels[:]...)
	}
}
