package controlplane

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	metrics "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// metricsWindow is the interval at which a kubelet measures its Pods.
const metricsWindow = 10 * time.Second

// summaryTimeout limits the time of one kubelet. A node that is off must not keep others from being listed.
const summaryTimeout = 5 * time.Second

// metricsSource answers from the kubelets at each request. It keeps nothing, so it costs nothing while nobody asks.
type metricsSource struct{ client kubernetes.Interface }

// nodes returns the metrics of the nodes that the options select.
func (m metricsSource) nodes(ctx context.Context, options metav1.ListOptions) ([]metrics.NodeMetrics, error) {
	list, err := m.client.CoreV1().Nodes().List(ctx, options)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(list.Items))
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	summaries := m.summaries(ctx, names)
	all := []metrics.NodeMetrics{}
	for i := range list.Items {
		if one, ok := nodeMetrics(&list.Items[i], summaries[list.Items[i].Name]); ok {
			all = append(all, one)
		}
	}
	return all, nil
}

// pods returns the metrics of the Pods that the options select.
func (m metricsSource) pods(ctx context.Context, namespace string, options metav1.ListOptions) ([]metrics.PodMetrics, error) {
	list, err := m.client.CoreV1().Pods(namespace).List(ctx, options)
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Items {
		if name := list.Items[i].Spec.NodeName; name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return podMetrics(list.Items, m.summaries(ctx, names)), nil
}

// summaries asks the kubelets of nodes for what their Pods use. Nodes that do not answer are missing.
func (m metricsSource) summaries(ctx context.Context, nodes []string) map[string]*stats.Summary {
	var mu sync.Mutex
	var requests errgroup.Group
	found := map[string]*stats.Summary{}
	for _, name := range nodes {
		requests.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, summaryTimeout)
			defer cancel()
			summary, err := m.summary(ctx, name)
			if err != nil {
				return nil //nolint:nilerr // as with a node that is off, it has no metrics
			}
			mu.Lock()
			defer mu.Unlock()
			found[name] = summary
			return nil
		})
	}
	_ = requests.Wait() // none fails
	return found
}

func (m metricsSource) summary(ctx context.Context, node string) (*stats.Summary, error) {
	data, err := m.client.CoreV1().RESTClient().Get().Resource("nodes").Name(node).SubResource("proxy").Suffix("stats/summary").
		Param("only_cpu_and_memory", "true").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	return parseSummary(data)
}

// nodeMetrics returns what the Pods of a node use together. The kubelet also reports the use of the whole host, which all
// nodes on it have in common.
func nodeMetrics(node *corev1.Node, summary *stats.Summary) (metrics.NodeMetrics, bool) {
	if summary == nil {
		return metrics.NodeMetrics{}, false
	}
	for _, c := range summary.Node.SystemContainers {
		if c.Name != stats.SystemContainerPods {
			continue
		}
		use, at, ok := usage(c.CPU, c.Memory)
		return metrics.NodeMetrics{
			ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels, CreationTimestamp: metav1.Now()},
			Timestamp:  at, Window: metav1.Duration{Duration: metricsWindow}, Usage: use,
		}, ok
	}
	return metrics.NodeMetrics{}, false
}

// podMetrics returns the metrics of those of the Pods that were measured since they were started.
func podMetrics(pods []corev1.Pod, summaries map[string]*stats.Summary) []metrics.PodMetrics {
	measured := map[string]stats.PodStats{}
	for _, summary := range summaries {
		for _, p := range summary.Pods {
			measured[p.PodRef.UID] = p
		}
	}
	all := []metrics.PodMetrics{}
	for i := range pods {
		pod := &pods[i]
		one := metrics.PodMetrics{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, Labels: pod.Labels, CreationTimestamp: metav1.Now()},
			Window:     metav1.Duration{Duration: metricsWindow},
		}
		for _, c := range measured[string(pod.UID)].Containers {
			use, at, ok := usage(c.CPU, c.Memory)
			if !ok {
				continue
			}
			one.Containers = append(one.Containers, metrics.ContainerMetrics{Name: c.Name, Usage: use})
			if one.Timestamp.IsZero() || at.Before(&one.Timestamp) {
				one.Timestamp = at
			}
		}
		if len(one.Containers) == 0 {
			continue
		}
		slices.SortFunc(one.Containers, func(a, b metrics.ContainerMetrics) int { return cmp.Compare(a.Name, b.Name) })
		all = append(all, one)
	}
	return all
}

// usage returns the processors and the memory that something uses, and when they were measured; false if they were not yet.
func usage(cpu *stats.CPUStats, memory *stats.MemoryStats) (corev1.ResourceList, metav1.Time, bool) {
	if cpu == nil || cpu.UsageNanoCores == nil || memory == nil || memory.WorkingSetBytes == nil {
		return nil, metav1.Time{}, false
	}
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewScaledQuantity(int64(*cpu.UsageNanoCores), resource.Nano),
		corev1.ResourceMemory: *resource.NewQuantity(int64(*memory.WorkingSetBytes), resource.BinarySI),
	}, cpu.Time, true
}
