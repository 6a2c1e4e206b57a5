package status

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

func TestNetworksAreListed(t *testing.T) {
	got := describeNetworks([]backend.Network{
		{Namespace: "default", Prefix: "10.208.0.0/22", Machines: []backend.NetworkMachine{
			{Name: "web", Address: "10.208.1.7", Connected: true, Leased: true, Forwards: []backend.NetworkForward{
				{Name: "ssh", Protocol: "TCP", Host: "127.0.0.1:40001", Port: 22},
				{Name: "dns", Protocol: "UDP", Host: "127.0.0.1:40002", Port: 53, Error: "address already in use"},
			}},
			{Name: "booting", Address: "10.208.1.8", Connected: true},
			{Name: "off", Address: "10.208.1.9"},
		}},
		{Namespace: "broken", Error: "it does not answer"},
	})
	want := `
Networks of VirtualMachines:

  default                  10.208.0.0/22
    web                    10.208.1.7      address in use
      ssh                  127.0.0.1:40001 to port 22/TCP
      dns                  127.0.0.1:40002 to port 53/UDP (address already in use)
    booting                10.208.1.8      connected
    off                    10.208.1.9      not connected
  broken                   it does not answer
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := describeNetworks(nil); got != "" {
		t.Errorf("without networks: %q", got)
	}
}
