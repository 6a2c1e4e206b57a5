package controlplane

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// simulatedLabel marks the nodes that kwok simulates: Pods there execute nothing.
const simulatedLabel = "keelson.dev/simulated"

// nodePrefix is the prefix of the names of simulated nodes.
const nodePrefix = "simulated-"

func nodeName(i int) string { return nodePrefix + strconv.Itoa(i) }

// Settle starts the nodes and waits until Pods can be created and run: the default ServiceAccount exists and the
// nodes are ready. With APIOnly it returns at once. After an error it may be called again.
func (cp *ControlPlane) Settle(ctx context.Context) error {
	if cp.opts.APIOnly {
		return nil
	}
	ctx, done := cp.endings.watch(ctx)
	defer done()
	client, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		return err
	}
	if err := cp.ensureNodes(ctx, client); err != nil {
		return fmt.Errorf("simulated nodes: %w", err)
	}
	if cp.opts.Nodes > 0 {
		if err := cp.step(ctx, cp.kwok()); err != nil {
			return err
		}
	}
	if err := cp.settleRealNodes(ctx, client); err != nil {
		return fmt.Errorf("real nodes: %w", err)
	}
	return awaitServiceAccount(ctx, client)
}

// Open creates the default ServiceAccount, without which no Pod is admitted, and the simulated nodes, without waiting
// for controllers. Then the API is usable; Pods run after Settle. With Options.OpenEarly most of this is done when
// Start returns.
func (cp *ControlPlane) Open(ctx context.Context) error {
	if cp.opts.OpenEarly {
		select {
		case err := <-cp.opened:
			cp.opened <- err // for the next call
			if err == nil {
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return cp.openNow(ctx)
}

// openNow implements Open for an API that may not be ready yet.
func (cp *ControlPlane) openNow(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		return err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	const what = "the namespace default, which kube-apiserver makes,"
	err = await(ctx, what, 20*time.Millisecond, time.Minute, func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(ctx, account, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	if err != nil || cp.opts.APIOnly {
		return err
	}
	if err := cp.ensureNodes(ctx, client); err != nil {
		return fmt.Errorf("simulated nodes: %w", err)
	}
	return nil
}

// awaitServiceAccount waits for the default ServiceAccount, without which no Pod is admitted.
func awaitServiceAccount(ctx context.Context, client kubernetes.Interface) error {
	const what = "the default ServiceAccount, which kube-controller-manager makes,"
	return await(ctx, what, 50*time.Millisecond, time.Minute, func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// ensureNodes creates or deletes simulated nodes until their number is the requested one.
func (cp *ControlPlane) ensureNodes(ctx context.Context, client kubernetes.Interface) error {
	existing, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: simulatedLabel + "=true"})
	if err != nil {
		return err
	}
	var port int32
	if cp.opts.Nodes > 0 {
		if port, err = cp.simulatedKubelet(); err != nil {
			return err
		}
	}
	wanted := map[string]bool{}
	for i := range cp.opts.Nodes {
		wanted[nodeName(i)] = true
		_, err := client.CoreV1().Nodes().Create(ctx, newNode(i, port), metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	for _, node := range existing.Items {
		if wanted[node.Name] {
			if err := setKubeletPort(ctx, client, &node, port); err != nil {
				return err
			}
			continue
		}
		if err := client.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	if cp.opts.Nodes == 0 {
		return nil
	}
	return grantKwok(ctx, client)
}

// setKubeletPort sets the port at which kube-apiserver reaches the kubelet of a simulated node; see serveSimulatedKubelet.
func setKubeletPort(ctx context.Context, client kubernetes.Interface, node *corev1.Node, port int32) error {
	if node.Status.DaemonEndpoints.KubeletEndpoint.Port == port {
		return nil
	}
	patch := fmt.Appendf(nil, `{"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":%d}}}}`, port)
	_, err := client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// freeNodes deletes the node leases of a kwok that has ended. Otherwise the next kwok would wait for their expiry, up
// to 40 seconds, before it simulates any Pod. No other kwok manages these nodes.
func (cp *ControlPlane) freeNodes(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		return err
	}
	leases := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	list, err := leases.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, lease := range list.Items {
		if !strings.HasPrefix(lease.Name, nodePrefix) {
			continue
		}
		if err := leases.Delete(ctx, lease.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// checkNodes returns an error unless all simulated nodes are ready.
func (cp *ControlPlane) checkNodes(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		return err
	}
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: simulatedLabel + "=true"})
	if err != nil {
		return err
	}
	ready := 0
	for _, node := range list.Items {
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				ready++
			}
		}
	}
	if ready < cp.opts.Nodes {
		return fmt.Errorf("%d of %d simulated nodes are ready", ready, cp.opts.Nodes)
	}
	return nil
}

// newNode returns a simulated node with ample resources and with a kubelet at that port.
func newNode(i int, kubeletPort int32) *corev1.Node {
	name := nodeName(i)
	room := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("256"),
		corev1.ResourceMemory:           resource.MustParse("1Ti"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		corev1.ResourcePods:             resource.MustParse("10000"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				simulatedLabel:         "true",
				corev1.LabelHostname:   name,
				corev1.LabelArchStable: "amd64",
				corev1.LabelOSStable:   "linux",
				"type":                 "kwok",
			},
			Annotations: map[string]string{
				"keelson.dev/simulated": "kwok simulates this node: its Pods report that they run, but nothing is executed",
			},
		},
		Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room,
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: kubeletPort}},
		},
	}
}

// grantKwok grants kwok the permissions of the kubelets of all simulated nodes.
func grantKwok(ctx context.Context, client kubernetes.Interface) error {
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: kwokUser},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch", "patch", "update"}},
			{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch", "update"}},
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch", "patch", "update", "delete"}},
			{APIGroups: []string{""}, Resources: []string{"pods/status"}, Verbs: []string{"patch", "update"}},
			{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch", "update"}},
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "list", "watch", "create", "patch", "update"}},
		},
	}
	roles := client.RbacV1().ClusterRoles()
	if _, err := roles.Create(ctx, role, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
		_, err = roles.Update(ctx, role, metav1.UpdateOptions{})
		if err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: kwokUser},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: kwokUser},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: kwokUser}},
	}
	_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}
