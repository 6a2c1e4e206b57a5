package pod

import (
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// The ports of a Pod are those of its IPv4 address, whatever family the cluster prefers.
func TestEndpointsAreIPv4(t *testing.T) {
	machine := newMachine()
	machine.Service = true
	definition := newDefinition(&machine)
	for name, test := range map[string]struct {
		addresses []string
		endpoint  string
		service   string
		refused   bool
	}{
		"no address yet":   {nil, "", "", false},
		"IPv4":             {[]string{"10.0.0.7"}, "10.0.0.7:22", "10.0.0.7", false},
		"IPv6 comes first": {[]string{"fd00::7", "10.0.0.7"}, "10.0.0.7:22", "10.0.0.7", false},
		"IPv6 alone":       {[]string{"fd00::7"}, "", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			all, service := endpoints(test.addresses, &machine, &definition)
			if endpoint := first(all); endpoint != test.endpoint {
				t.Errorf("endpoint %q, want %q", endpoint, test.endpoint)
			}
			at := ptr.Deref(service, backend.Service{})
			if at.Address != test.service || strings.Contains(at.Error, "IPv4 only") != test.refused {
				t.Errorf("Service at %+v", at)
			}
		})
	}
	machine.Service = false
	if _, service := endpoints([]string{"fd00::7"}, &machine, &definition); service != nil {
		t.Errorf("a Service that nobody wants: %+v", service)
	}
}

func first(endpoints []v1alpha1.Endpoint) string {
	if len(endpoints) == 0 {
		return ""
	}
	return endpoints[0].Address
}
