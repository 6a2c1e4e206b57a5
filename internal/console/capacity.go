package console

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	quantities "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodeCapacity is what a node has, in CPUs and bytes.
type nodeCapacity struct {
	Name      string `json:"name"`
	Ready     bool   `json:"ready"`
	Simulated bool   `json:"simulated"`
	// Allocatable is what Pods can request, Requested what those on the node do.
	Allocatable amounts `json:"allocatable"`
	Requested   amounts `json:"requested"`
	Pods        int     `json:"pods"`
	// Used is what the node uses now, nil where the API does not serve metrics.
	Used *amounts `json:"used,omitempty"`
}

type amounts struct {
	CPU    float64 `json:"cpu"`
	Memory float64 `json:"memory"`
}

// simulatedNode is the label of nodes that Keelson simulates.
const simulatedNode = "keelson.dev/simulated"

// maxCapacityObjects bounds what is read of the Pods and machines of a large cluster. They are read a page at a time.
const maxCapacityObjects, capacityPage = 50_000, 500

// capacity adds up, as the user, what the nodes and this host have, and what Pods and machines request of it. The page would have to hold
// all Pods for that.
func (c *Console) capacity(w http.ResponseWriter, r *http.Request) {
	var nodes corev1.NodeList
	if status := c.read(r.Context(), "/api/v1/nodes", &nodes); status != nil {
		answer(w, int(status.Code), status)
		return
	}
	found := map[string]*nodeCapacity{}
	all := make([]nodeCapacity, len(nodes.Items))
	for i := range nodes.Items {
		node := &nodes.Items[i]
		all[i] = nodeCapacity{Name: node.Name, Ready: isReady(node), Simulated: node.Labels[simulatedNode] == "true", Allocatable: amountsOf(node.Status.Allocatable)}
		found[node.Name] = &all[i]
	}
	if status := c.addRequests(r.Context(), found); status != nil {
		answer(w, int(status.Code), status)
		return
	}
	c.addUsage(r.Context(), found)
	answer(w, http.StatusOK, map[string]any{"nodes": all, "host": c.hostCapacity(r.Context())})
}

func isReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func amountsOf(list corev1.ResourceList) amounts {
	return amounts{CPU: list.Cpu().AsApproximateFloat64(), Memory: list.Memory().AsApproximateFloat64()}
}

// addRequests adds what the Pods on the nodes request.
func (c *Console) addRequests(ctx context.Context, nodes map[string]*nodeCapacity) *metav1.Status {
	query := url.Values{"limit": {strconv.Itoa(capacityPage)}, "fieldSelector": {"spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"}}
	for read := 0; read < maxCapacityObjects; read += capacityPage {
		var pods corev1.PodList
		if status := c.read(ctx, "/api/v1/pods?"+query.Encode(), &pods); status != nil {
			return status
		}
		for i := range pods.Items {
			if node := nodes[pods.Items[i].Spec.NodeName]; node != nil {
				requested := requestsOf(&pods.Items[i])
				node.Requested.CPU += requested.CPU
				node.Requested.Memory += requested.Memory
				node.Pods++
			}
		}
		if pods.Continue == "" {
			return nil
		}
		query.Set("continue", pods.Continue)
	}
	status := newStatus(http.StatusInsufficientStorage, metav1.StatusReasonUnknown, "The cluster has more Pods than the console adds up.")
	return &status
}

// requestsOf returns what the scheduler reserves for a Pod: what its containers request together, or one of the init
// containers if that is more. Init containers that keep running count as containers.
func requestsOf(pod *corev1.Pod) amounts {
	cpu, memory := podRequest(pod, corev1.ResourceCPU), podRequest(pod, corev1.ResourceMemory)
	return amounts{CPU: cpu.AsApproximateFloat64(), Memory: memory.AsApproximateFloat64()}
}

func podRequest(pod *corev1.Pod, name corev1.ResourceName) quantities.Quantity {
	var sum, initial quantities.Quantity
	for i := range pod.Spec.InitContainers {
		container := &pod.Spec.InitContainers[i]
		request := container.Resources.Requests[name].DeepCopy()
		if container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sum.Add(request)
			request = sum.DeepCopy()
		} else {
			request.Add(sum)
		}
		if request.Cmp(initial) > 0 {
			initial = request
		}
	}
	for i := range pod.Spec.Containers {
		sum.Add(pod.Spec.Containers[i].Resources.Requests[name])
	}
	if initial.Cmp(sum) > 0 {
		sum = initial
	}
	if pod.Spec.Resources != nil {
		if request, found := pod.Spec.Resources.Requests[name]; found {
			sum = request.DeepCopy()
		}
	}
	sum.Add(pod.Spec.Overhead[name])
	return sum
}

// addUsage adds what the nodes use, where an API of metrics is served and the user may read it.
func (c *Console) addUsage(ctx context.Context, nodes map[string]*nodeCapacity) {
	var metrics struct {
		Items []struct {
			Metadata metav1.ObjectMeta   `json:"metadata"`
			Usage    corev1.ResourceList `json:"usage"`
		} `json:"items"`
	}
	if c.read(ctx, "/apis/metrics.k8s.io/v1beta1/nodes", &metrics) != nil {
		return
	}
	for _, item := range metrics.Items {
		if node := nodes[item.Metadata.Name]; node != nil {
			used := amountsOf(item.Usage)
			node.Used = &used
		}
	}
}
