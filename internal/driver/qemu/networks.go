package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/process"
)

const (
	// networkFile is the record of the network of a namespace, in its folder.
	networkFile = "network.json"
	// networkProcess is the prefix of the IDs of the processes of networks. No UID begins with it.
	networkProcess = "network."
)

// networkRecord is the persistent state of a network. It is written before a machine gets an address in it.
type networkRecord struct {
	Namespace string       `json:"namespace"`
	Prefix    netip.Prefix `json:"prefix"`
}

// networks has the network of each namespace with machines.
type networks struct {
	d *Driver

	mu  sync.Mutex
	all map[string]*namespaceNetwork
}

func (d *Driver) networksDir() string { return networksDir(d.options.StateDir) }

// openNetworks reads the records of networks, and follows those that have machines or a process. It is called after the
// machines were found.
func (d *Driver) openNetworks() error {
	d.networks.mu.Lock()
	defer d.networks.mu.Unlock()
	entries, err := os.ReadDir(d.networksDir())
	if err != nil {
		return fmt.Errorf("find networks: %w", err)
	}
	for _, entry := range entries {
		record, err := readNetwork(filepath.Join(d.networksDir(), entry.Name()))
		if err != nil {
			// The addresses of its machines tell the prefix, see networks.get.
			d.options.Log.Error(err, "Could not read a network", "namespace", entry.Name())
			continue
		}
		d.networks.add(record)
	}
	for _, m := range d.all() {
		if m.def.Address.IsValid() {
			if _, err := d.networks.get(m.id.Namespace, m.def.Address); err != nil {
				return err
			}
		}
	}
	processes, err := d.processes.List()
	if err != nil {
		// A damaged record; it is discarded when its machine or network needs the name.
		d.options.Log.Error(err, "Could not read all processes")
	}
	for _, proc := range processes {
		if namespace, found := strings.CutPrefix(proc.ID(), networkProcess); found && d.networks.all[namespace] == nil {
			// Its folder was removed by hand, and so were its machines: the process has to end.
			d.networks.add(networkRecord{Namespace: namespace})
		}
	}
	return nil
}

func readNetwork(dir string) (networkRecord, error) {
	var record networkRecord
	raw, err := os.ReadFile(filepath.Join(dir, networkFile))
	if err != nil {
		return record, err
	}
	if err := json.Unmarshal(raw, &record); err != nil {
		return record, fmt.Errorf("read %s: %w", filepath.Join(dir, networkFile), err)
	}
	if record.Namespace != filepath.Base(dir) || !record.Prefix.IsValid() || !record.Prefix.Addr().Is4() || record.Prefix.Bits() > 29 {
		return record, fmt.Errorf("%s is not the record of the network of namespace %s", filepath.Join(dir, networkFile), filepath.Base(dir))
	}
	return record, nil
}

// add follows a network; n.mu is held.
func (n *networks) add(record networkRecord) *namespaceNetwork {
	network := newNamespaceNetwork(n, record)
	n.touchAll() // their machines may allow this namespace
	n.all[record.Namespace] = network
	n.d.tasks.Go(network.follow)
	return network
}

// touchAll applies the present machines to all networks in the background; n.mu is held.
func (n *networks) touchAll() {
	for _, network := range n.all {
		network.touch()
	}
}

// find returns the network of a namespace; nil if it has none.
func (n *networks) find(namespace string) *namespaceNetwork {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.all[namespace]
}

// get returns the network of a namespace. It makes one if there is none: one that contains address, if that is valid,
// because its record was lost. n.mu is held.
func (n *networks) get(namespace string, address netip.Addr) (*namespaceNetwork, error) {
	if network := n.all[namespace]; network != nil && network.network().IsValid() {
		return network, nil
	}
	record := networkRecord{Namespace: namespace}
	if address.IsValid() {
		record.Prefix = netip.PrefixFrom(address, NetworkBits).Masked()
	} else {
		taken, err := hostRoutes()
		if err != nil {
			return nil, err
		}
		for _, other := range n.all {
			if other.network().IsValid() {
				taken = append(taken, other.network())
			}
		}
		if record.Prefix, err = choosePrefix(n.d.options.networkRanges(), taken); err != nil {
			return nil, err
		}
	}
	if err := record.write(filepath.Join(n.d.networksDir(), namespace)); err != nil {
		return nil, fmt.Errorf("record the network of namespace %s: %w", namespace, err)
	}
	step("network recorded")
	if network := n.all[namespace]; network != nil { // a process was found that nobody needed
		network.setPrefix(record.Prefix)
		return network, nil
	}
	return n.add(record), nil
}

func (r *networkRecord) write(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return atomicfile.WriteJSON(filepath.Join(dir, networkFile), r, atomicfile.Durable)
}

// claim gives a machine an address in the network of its namespace. The caller records it. The machine keeps it for its
// life.
func (n *networks) claim(m *machine) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	m.mu.Lock()
	has := m.def.Address
	m.leaving = false
	m.mu.Unlock()
	network, err := n.get(m.id.Namespace, has)
	if err != nil || has.IsValid() {
		return err
	}
	taken := map[netip.Addr]bool{}
	for _, other := range n.d.all() {
		other.mu.Lock()
		if other.id.Namespace == m.id.Namespace && other.def.Address.IsValid() {
			taken[other.def.Address] = true
		}
		other.mu.Unlock()
	}
	address, err := chooseAddress(network.network(), m.id.UID, taken)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.def.Address = address
	return nil
}

// release removes the network of a namespace without machines, with its record. The process has ended.
func (n *networks) release(network *namespaceNetwork) (released bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range n.d.all() {
		if m.id.Namespace == network.namespace && !m.isLeaving() {
			return false, nil
		}
	}
	if err := os.RemoveAll(network.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("remove the network of namespace %s: %w", network.namespace, err)
	}
	step("network removed")
	delete(n.all, network.namespace)
	n.touchAll()
	return true, nil
}

// sync applies the present machines of a namespace to its network, and returns when that is done.
func (n *networks) sync(ctx context.Context, namespace string) error {
	if network := n.find(namespace); network != nil {
		return network.sync(ctx)
	}
	// The state directory may have been removed while a process ran.
	_, err := process.EndMarked(ctx, newNamespaceNetwork(n, networkRecord{Namespace: namespace}).mark())
	return err
}

// touch applies the present machines of a namespace to its network in the background.
func (n *networks) touch(namespace string) {
	if network := n.find(namespace); network != nil {
		network.touch()
	}
}

// syncAll applies the present machines to all networks.
func (n *networks) syncAll(ctx context.Context) error {
	n.mu.Lock()
	var all []*namespaceNetwork
	for _, network := range n.all {
		all = append(all, network)
	}
	n.mu.Unlock()
	var errs []error
	for _, network := range all {
		errs = append(errs, network.sync(ctx))
	}
	return errors.Join(errs...)
}
