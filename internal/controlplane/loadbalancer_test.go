package controlplane

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestAssignAddresses(t *testing.T) {
	balanced := func(name string, age int, address string, change ...func(*corev1.Service)) *corev1.Service {
		s := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(time.Unix(int64(1000-age), 0))},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}},
		}
		if address != "" {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
		}
		for _, c := range change {
			c(s)
		}
		return s
	}
	families := func(families ...corev1.IPFamily) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.IPFamilies = families }
	}
	var many []*corev1.Service
	all := map[string]string{}
	for i := range 8 {
		many = append(many, balanced(fmt.Sprint("s", i), 100-i, ""))
		if i < 7 {
			all[fmt.Sprint("default/s", i)] = fmt.Sprintf("10.64.253.%d", i+1)
		}
	}
	for _, test := range []struct {
		name     string
		services []*corev1.Service
		network  string
		want     map[string]string
	}{
		{"the oldest first", []*corev1.Service{balanced("b", 1, ""), balanced("a", 2, "")}, "10.64.253.0/24", map[string]string{"default/a": "10.64.253.1", "default/b": "10.64.253.2"}},
		{"an address stays", []*corev1.Service{balanced("b", 1, "10.64.253.1"), balanced("a", 2, "")}, "10.64.253.0/24", map[string]string{"default/a": "10.64.253.2"}},
		{"two with the same", []*corev1.Service{balanced("b", 1, "10.64.253.1"), balanced("a", 2, "10.64.253.1")}, "10.64.253.0/24", map[string]string{"default/b": "10.64.253.2"}},
		{"an address of another network", []*corev1.Service{balanced("a", 1, "10.65.253.1")}, "10.64.253.0/24", map[string]string{"default/a": "10.64.253.1"}},
		{"other Services", []*corev1.Service{
			balanced("a", 1, "", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP }),
			balanced("b", 1, "", func(s *corev1.Service) { s.Spec.LoadBalancerClass = &s.Name }),
			balanced("c", 1, "", func(s *corev1.Service) { s.DeletionTimestamp = &s.CreationTimestamp }),
		}, "10.64.253.0/24", map[string]string{}},
		{"both families", []*corev1.Service{balanced("a", 2, "", families(corev1.IPv4Protocol, corev1.IPv6Protocol)), balanced("b", 1, "", families(corev1.IPv6Protocol))},
			"10.64.253.0/24", map[string]string{"default/a": "10.64.253.1 fd6b:656c:a40:fd01::", "default/b": "fd6b:656c:a40:fd02::"}},
		{"an IPv6 address stays", []*corev1.Service{balanced("a", 2, ""), balanced("b", 1, "fd6b:656c:a40:fd01::", families(corev1.IPv6Protocol))},
			"10.64.253.0/24", map[string]string{"default/a": "10.64.253.2"}},
		{"another family is added", []*corev1.Service{balanced("a", 2, "10.64.253.7", families(corev1.IPv4Protocol, corev1.IPv6Protocol))},
			"10.64.253.0/24", map[string]string{"default/a": "10.64.253.7 fd6b:656c:a40:fd07::"}},
		{"more than addresses", many, "10.64.253.0/29", all},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := map[string]string{}
			for service, addresses := range assignAddresses(test.services, netip.MustParsePrefix(test.network)) {
				got[service.String()] = strings.Trim(fmt.Sprint(addresses), "[]")
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
