package fake

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// Networks implements backend.Networker: nothing is ever sent in the networks of this driver.
func (d *Driver) Networks(context.Context) ([]backend.Network, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := map[string]*backend.Network{}
	for _, s := range d.servers {
		if !s.IsOn() || len(s.Addresses) == 0 {
			continue
		}
		network := all[s.Namespace]
		if network == nil {
			network = &backend.Network{Namespace: s.Namespace}
			all[s.Namespace] = network
		}
		network.Machines = append(network.Machines, backend.NetworkMachine{UID: s.UID, Name: s.Name, Address: s.Addresses[0]})
	}
	var networks []backend.Network
	for _, namespace := range slices.Sorted(maps.Keys(all)) {
		network := all[namespace]
		slices.SortFunc(network.Machines, func(a, b backend.NetworkMachine) int { return cmp.Compare(a.UID, b.UID) })
		networks = append(networks, *network)
	}
	return networks, nil
}
