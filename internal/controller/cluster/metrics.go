package cluster

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// measures are the metrics of events. The collector provides the metrics of the current state.
type measures struct {
	provisioning, deletion *prometheus.HistogramVec
	probes                 *prometheus.HistogramVec
	failures               *prometheus.CounterVec
	orphans                *prometheus.GaugeVec
}

// measured is global, like the metrics registry.
var measured = newMeasures()

func newMeasures() *measures {
	durations := []float64{1, 2, 3, 5, 8, 13, 30, 60, 120, 300, 600, 1200, 3600}
	return &measures{
		provisioning: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "keelson_cluster_provisioning_seconds", Buckets: durations,
			Help: "Time from the creation of a Cluster until it was first ready.",
		}, []string{"engine"}),
		deletion: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "keelson_cluster_deletion_seconds", Buckets: append([]float64{0.25, 0.5}, durations...),
			Help: "Time from the deletion of a Cluster until nothing was left of it.",
		}, []string{"engine"}),
		probes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "keelson_cluster_probe_seconds", Buckets: []float64{0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5},
			Help: "Response time of the API of a cluster to a probe.",
		}, []string{"cluster"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keelson_cluster_probe_failures_total",
			Help: "Failed probes of the API of a cluster.",
		}, []string{"cluster"}),
		orphans: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "keelson_cluster_orphans",
			Help: "Orphaned running clusters at the last check.",
		}, []string{"engine"}),
	}
}

// current is the reader of the running manager. A process may run several managers one after the other.
var current atomic.Pointer[client.Reader]

var registerOnce = sync.OnceFunc(func() {
	metrics.Registry.MustRegister(measured.provisioning, measured.deletion, measured.probes, measured.failures, measured.orphans, collector{})
})

// register adds the metrics to the registry. From now on the collector uses reader.
func register(reader client.Reader) {
	registerOnce()
	current.Store(&reader)
}

func (m *measures) probed(cluster string, took time.Duration, ok bool) {
	m.probes.WithLabelValues(cluster).Observe(took.Seconds())
	if !ok {
		m.failures.WithLabelValues(cluster).Inc()
	}
}

// observed updates the metrics after a status was written.
func (m *measures) observed(cluster *v1alpha1.Cluster, status v1alpha1.ClusterStatus, now time.Time) {
	was, is := kube.ConditionTransition(cluster.Status.Conditions, status.Conditions, v1alpha1.ConditionReady)
	if is.Reason == v1alpha1.ReasonAvailable && (was.Status == "" || was.Status == metav1.ConditionUnknown) && cluster.Status.Version == "" {
		m.provisioning.WithLabelValues(string(status.Engine)).Observe(kube.Seconds(cluster.CreationTimestamp.Time, now))
	}
}

// deleted updates the metrics after a cluster was removed.
func (m *measures) deleted(cluster *v1alpha1.Cluster, engine v1alpha1.Engine, now time.Time) {
	m.deletion.WithLabelValues(string(engine)).Observe(kube.Seconds(cluster.DeletionTimestamp.Time, now))
	m.forget(cluster.Name)
}

// forget deletes the probe metrics of a cluster that is no longer probed.
func (m *measures) forget(cluster string) {
	m.probes.DeleteLabelValues(cluster)
	m.failures.DeleteLabelValues(cluster)
}

// collector counts the Clusters and reads the expiry of their certificates at each scrape.
type collector struct{}

var (
	clustersDesc   = prometheus.NewDesc("keelson_clusters", "Clusters by engine and phase.", []string{"engine", "phase"}, nil)
	conditionsDesc = prometheus.NewDesc("keelson_cluster_conditions", "Clusters by condition, its status and its reason.", []string{"condition", "status", "reason"}, nil)
	expiryDesc     = prometheus.NewDesc("keelson_cluster_certificate_expiry_timestamp_seconds",
		"Expiry of the client certificate in the kubeconfig of a Cluster, in Unix seconds.", []string{"cluster"}, nil)
)

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- clustersDesc
	ch <- conditionsDesc
	ch <- expiryDesc
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
	var clusters v1alpha1.ClusterList
	var kubeconfigs v1alpha1.KubeconfigList
	if reader.List(ctx, &clusters, client.UnsafeDisableDeepCopy) != nil || reader.List(ctx, &kubeconfigs, client.UnsafeDisableDeepCopy) != nil {
		return // the cache has not started or has stopped
	}
	byPhase, byCondition := counts{}, counts{}
	for i := range clusters.Items {
		status := &clusters.Items[i].Status
		byPhase.add(string(clusters.Items[i].Spec.EngineOrDefault()), string(status.Phase))
		for _, c := range status.Conditions {
			byCondition.add(c.Type, string(c.Status), c.Reason)
		}
	}
	byPhase.send(ch, clustersDesc)
	byCondition.send(ch, conditionsDesc)
	for i := range kubeconfigs.Items {
		if k := &kubeconfigs.Items[i]; k.Status.NotAfter != nil {
			ch <- prometheus.MustNewConstMetric(expiryDesc, prometheus.GaugeValue, float64(k.Status.NotAfter.Unix()), k.Name)
		}
	}
}

// counts counts objects by label values.
type counts map[string]int

// separator does not occur in label values.
const separator = "\x00"

func (t counts) add(values ...string) { t[strings.Join(values, separator)]++ }

func (t counts) send(ch chan<- prometheus.Metric, desc *prometheus.Desc) {
	for _, values := range slices.Sorted(maps.Keys(t)) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(t[values]), strings.Split(values, separator)...)
	}
}
