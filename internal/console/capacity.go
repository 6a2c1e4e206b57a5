package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	resources "k8s.io/component-helpers/resource"
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

// maxCapacityObjects bounds what is read of the Pods and machines of a large cluster.
const maxCapacityObjects = 50_000

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
	const running = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
	return c.each(ctx, "/api/v1/pods", running, func() runtime.Object { return new(corev1.PodList) }, func(object runtime.Object) {
		pod := object.(*corev1.Pod) //nolint:forcetypeassert // an item of the list
		if node := nodes[pod.Spec.NodeName]; node != nil {
			requested := amountsOf(resources.PodRequests(pod, resources.PodResourcesOptions{}))
			node.Requested.CPU += requested.CPU
			node.Requested.Memory += requested.Memory
			node.Pods++
		}
	})
}

// each calls do for each object of a kind, which it reads a page at a time, as the user.
func (c *Console) each(ctx context.Context, path, fields string, newList func() runtime.Object, do func(runtime.Object)) *metav1.Status {
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		query := url.Values{"limit": {strconv.FormatInt(options.Limit, 10)}, "continue": {options.Continue}, "fieldSelector": {fields}}
		list := newList()
		if status := c.read(ctx, path+"?"+query.Encode(), list); status != nil {
			return nil, &apierrors.StatusError{ErrStatus: *status}
		}
		return list, nil
	})
	count := 0
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		if count++; count > maxCapacityObjects {
			return &apierrors.StatusError{ErrStatus: *newStatus(http.StatusInsufficientStorage, metav1.StatusReasonUnknown,
				"The cluster has more objects at "+path+" than the console adds up.")}
		}
		do(object)
		return nil
	})
	if refused := (apierrors.APIStatus)(nil); errors.As(err, &refused) {
		status := refused.Status()
		return &status
	}
	return nil // the request has ended
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
