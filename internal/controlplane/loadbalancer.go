package controlplane

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// loadBalancerRetry is the pause after a failed write of the status of a Service.
const loadBalancerRetry = time.Second

// serveLoadBalancers gives each Service of type LoadBalancer an address of the network, until the context ends. The host has a route
// to them by each node, whose kube-proxy does the rest.
func (cp *ControlPlane) serveLoadBalancers(ctx context.Context, client kubernetes.Interface, network netip.Prefix) {
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default: // a notification is pending
		}
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	services := factory.Core().V1().Services().Informer()
	_, err := services.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { notify() }, UpdateFunc: func(any, any) { notify() }, DeleteFunc: func(any) { notify() },
	})
	if err != nil {
		cp.opts.Log.Error(err, "Services of type LoadBalancer get no addresses")
		return
	}
	cp.wg.Go(func() { services.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), services.HasSynced) {
		return
	}
	for {
		var all []*corev1.Service
		for _, object := range services.GetStore().List() {
			all = append(all, object.(*corev1.Service))
		}
		if err := writeAddresses(ctx, client, assignAddresses(all, network)); err != nil && ctx.Err() == nil {
			cp.opts.Log.Error(err, "Failed to give a Service of type LoadBalancer an address, will retry", "pause", loadBalancerRetry.String())
			if !pause(ctx, loadBalancerRetry) {
				return
			}
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// assignAddresses returns the addresses of Services of type LoadBalancer that have none yet. An address that a Service has stays
// unless an older Service has the same. Services with a class belong to another implementation.
func assignAddresses(services []*corev1.Service, network netip.Prefix) map[types.NamespacedName]netip.Addr {
	wanted := slices.DeleteFunc(slices.Clone(services), func(s *corev1.Service) bool {
		return s.Spec.Type != corev1.ServiceTypeLoadBalancer || s.Spec.LoadBalancerClass != nil || s.DeletionTimestamp != nil
	})
	slices.SortFunc(wanted, func(a, b *corev1.Service) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	taken := map[netip.Addr]bool{}
	var without []*corev1.Service
	for _, s := range wanted {
		if address := addressOf(s); network.Contains(address) && !taken[address] {
			taken[address] = true
			continue
		}
		without = append(without, s)
	}
	assigned := map[types.NamespacedName]netip.Addr{}
	next := network.Addr().Next()
	for _, s := range without {
		for taken[next] {
			next = next.Next()
		}
		if !network.Contains(next) {
			break // the others stay pending
		}
		taken[next] = true
		assigned[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}] = next
	}
	return assigned
}

// addressOf returns the address that a Service has. It is not valid if it has none.
func addressOf(s *corev1.Service) netip.Addr {
	if len(s.Status.LoadBalancer.Ingress) != 1 {
		return netip.Addr{}
	}
	address, _ := netip.ParseAddr(s.Status.LoadBalancer.Ingress[0].IP)
	return address
}

// writeAddresses writes addresses to the statuses of Services. One that is gone meanwhile needs none.
func writeAddresses(ctx context.Context, client kubernetes.Interface, addresses map[types.NamespacedName]netip.Addr) error {
	mode := corev1.LoadBalancerIPModeVIP
	for service, address := range addresses {
		status := corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{
			Ingress: []corev1.LoadBalancerIngress{{IP: address.String(), IPMode: &mode}},
		}}
		patch, err := json.Marshal(map[string]any{"status": map[string]any{"loadBalancer": status.LoadBalancer}})
		if err != nil {
			return err
		}
		_, err = client.CoreV1().Services(service.Namespace).Patch(ctx, service.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("service %s: %w", service, err)
		}
	}
	return nil
}
