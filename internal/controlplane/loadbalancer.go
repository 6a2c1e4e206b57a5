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

	"github.com/keelson-dev/keelson/internal/node"
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

// assignAddresses returns the addresses, of each of its families, of Services of type LoadBalancer that do not have them. What a Service has
// stays unless an older Service has the same. The IPv6 address follows from the IPv4 one, which a Service of IPv6 alone reserves, too.
// Services with a class belong to another implementation.
func assignAddresses(services []*corev1.Service, network netip.Prefix) map[types.NamespacedName][]netip.Addr {
	wanted := slices.DeleteFunc(slices.Clone(services), func(s *corev1.Service) bool {
		return s.Spec.Type != corev1.ServiceTypeLoadBalancer || s.Spec.LoadBalancerClass != nil || s.DeletionTimestamp != nil
	})
	slices.SortFunc(wanted, func(a, b *corev1.Service) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	reserved := reservedAddresses(wanted, network)
	taken := map[netip.Addr]bool{}
	for _, address := range reserved {
		taken[address] = true
	}
	assigned := map[types.NamespacedName][]netip.Addr{}
	next := network.Addr().Next()
	for _, s := range wanted {
		address, ok := reserved[s.UID]
		if !ok {
			for taken[next] {
				next = next.Next()
			}
			if !network.Contains(next) {
				continue // it stays pending
			}
			taken[next] = true
			address = next
		}
		if all := inFamilies(address, s.Spec.IPFamilies); !slices.Equal(all, addressesOf(s)) {
			assigned[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}] = all
		}
	}
	return assigned
}

// reservedAddresses returns the IPv4 address that each Service keeps, by its UID.
func reservedAddresses(services []*corev1.Service, network netip.Prefix) map[types.UID]netip.Addr {
	reserved, taken := map[types.UID]netip.Addr{}, map[netip.Addr]bool{}
	for _, s := range services {
		for _, address := range addressesOf(s) {
			if network := node.IPv6(network); network.Contains(address) {
				address = netip.AddrFrom4([4]byte(address.AsSlice()[4:8]))
			}
			if network.Contains(address) && !taken[address] {
				reserved[s.UID], taken[address] = address, true
				break
			}
		}
	}
	return reserved
}

// inFamilies returns an IPv4 address, or the IPv6 address for it, for each family.
func inFamilies(address netip.Addr, families []corev1.IPFamily) (all []netip.Addr) {
	for _, family := range families {
		if family == corev1.IPv6Protocol {
			all = append(all, node.IPv6(netip.PrefixFrom(address, 32)).Addr())
		} else {
			all = append(all, address)
		}
	}
	return all
}

// addressesOf returns the addresses that a Service has.
func addressesOf(s *corev1.Service) (addresses []netip.Addr) {
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		if address, err := netip.ParseAddr(ingress.IP); err == nil {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// writeAddresses writes addresses to the statuses of Services. One that is gone meanwhile needs none.
func writeAddresses(ctx context.Context, client kubernetes.Interface, addresses map[types.NamespacedName][]netip.Addr) error {
	mode := corev1.LoadBalancerIPModeVIP
	for service, all := range addresses {
		var status corev1.LoadBalancerStatus
		for _, address := range all {
			status.Ingress = append(status.Ingress, corev1.LoadBalancerIngress{IP: address.String(), IPMode: &mode})
		}
		patch, err := json.Marshal(map[string]any{"status": map[string]any{"loadBalancer": status}})
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
