package node

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// MaxNodes is the largest number of real nodes of a control plane; node/internal/settings has the same.
const MaxNodes = 32

// Name returns the name of the Node object of the real node with an index, which counts from 0 on.
func Name(index int) string { return numbered("keelson-node", index) }

// Dir returns the directory of the real node with an index in a data directory.
func Dir(data string, index int) string { return filepath.Join(data, numbered("node", index)) }

// numbered returns the name of what a control plane has for each of its real nodes. The first one is without a number.
func numbered(name string, index int) string {
	if index == 0 {
		return name
	}
	return fmt.Sprintf("%s-%d", name, index+1)
}

// Socket is the file, in the node's directory, at which its containerd listens.
const Socket = "containerd.sock"

// Settings are what keelson-node reads; node/internal/settings explains the fields.
type Settings struct {
	ID               string       `json:"id"`
	Name             string       `json:"name"`
	Dir              string       `json:"dir"`
	Programs         string       `json:"programs"`
	Kube             string       `json:"kube"`
	Runtime          string       `json:"runtime"`
	APIPort          int          `json:"apiPort"`
	Network          netip.Prefix `json:"network"`
	Index            int          `json:"index,omitempty"`
	Nodes            int          `json:"nodes,omitempty"`
	Peers            string       `json:"peers,omitempty"`
	Layers           string       `json:"layers,omitempty"`
	Services         netip.Prefix `json:"services"`
	IPv6             bool         `json:"ipv6,omitempty"`
	ProxyMode        string       `json:"proxyMode"`
	RestrictOOMScore bool         `json:"restrictOOMScore"`
	Rootless         *RootlessRun `json:"rootless,omitempty"`
}

// RootlessRun is what a node without root needs; node/internal/settings explains the fields.
type RootlessRun struct {
	UIDs       IDs    `json:"uids"`
	GIDs       IDs    `json:"gids"`
	NewUIDMap  string `json:"newuidmap"`
	NewGIDMap  string `json:"newgidmap"`
	SystemdRun string `json:"systemdRun"`
	RuntimeDir string `json:"runtimeDir"`
	Egress     string `json:"egress"`
}

// Egress is the socket at which a node without root connects kube-apiserver to its Pods and Services. It is in the working directory of both.
const Egress = "egress"

// NewSettings returns the settings of the nodes with these indexes of a data directory, for this machine. Kube is the path of keelson-kube,
// and services the network of Services, which must be valid; with ipv6, Services can have IPv6 addresses, too. The nodes keep their network if they had one that is still free. Both
// are claimed.
func NewSettings(claims *Claims, m Machine, data string, indexes []int, kube string, apiPort int, services netip.Prefix, ipv6 bool) ([]Settings, error) {
	s := Settings{
		Programs: m.Programs, Kube: kube, Runtime: m.Runtime, APIPort: apiPort, Nodes: len(indexes),
		Services: services, IPv6: ipv6 && m.IPv6, ProxyMode: m.proxyMode(), RestrictOOMScore: m.Capabilities&capSysResource == 0,
	}
	if m.Root {
		s.Peers = filepath.Join(data, "peers")
		s.Layers = cmp.Or(m.Layers, LayersDir(data))
	}
	if r := m.Rootless; !m.Root {
		s.Rootless = &RootlessRun{
			UIDs: r.UIDs, GIDs: r.GIDs, NewUIDMap: r.NewUIDMap, NewGIDMap: r.NewGIDMap, SystemdRun: r.SystemdRun,
			RuntimeDir: RuntimeDir(r.UID), Egress: Egress,
		}
	}
	previous, err := readNetwork(Settings{Dir: Dir(data, 0)}.File())
	if err != nil {
		return nil, err
	}
	// It stays the network of Services also if another node has it.
	if _, err := claims.take(s.Services, keptTimeout); err != nil {
		return nil, err
	}
	candidates, err := networksFor(id(Dir(data, 0)), previous)
	if err != nil {
		return nil, err
	}
	s.Network, err = claims.choose(previous, candidates, func() ([]netip.Prefix, error) {
		used, err := usedNetworks(links(data))
		return append(used, s.Services), err
	})
	if err != nil {
		return nil, err
	}
	all := make([]Settings, 0, len(indexes))
	for _, index := range indexes {
		all = append(all, s.At(data, index))
	}
	return all, nil
}

// ClaimServices claims the network of Services of the nodes of a data directory. It reports whether nothing else on this machine
// uses it.
func ClaimServices(claims *Claims, data string, services netip.Prefix) (free bool, err error) {
	taken, err := claims.take(services, keptTimeout)
	if err != nil || !taken {
		return false, err
	}
	used, err := usedNetworks(links(data))
	return err == nil && !overlaps(services, used), err
}

// At returns the settings of another node of the same data directory.
func (s Settings) At(data string, index int) Settings {
	s.Index, s.Name, s.Dir = index, Name(index), Dir(data, index)
	s.ID = id(s.Dir)
	return s
}

// AsStarted returns settings with what a node that runs has from its start: its share of the machine and its IP families. Another one would
// have to be started again.
func AsStarted(s Settings) Settings {
	data, err := os.ReadFile(s.File())
	var previous Settings
	if err == nil && json.Unmarshal(data, &previous) == nil {
		s.Nodes, s.IPv6 = cmp.Or(previous.Nodes, s.Nodes), previous.IPv6
	}
	return s
}

// FreeServices claims a network for the Services of the nodes of a data directory, to which this machine has no route yet:
// the usual one if it is valid and if possible. It must be kept, for the Services keep their addresses.
func FreeServices(claims *Claims, data string, usual netip.Prefix) (netip.Prefix, error) {
	candidates, err := networksFor(id(filepath.Join(Dir(data, 0), "services")), usual)
	if err != nil {
		return netip.Prefix{}, err
	}
	return claims.choose(netip.Prefix{}, candidates, func() ([]netip.Prefix, error) { return usedNetworks(links(data)) })
}

// links returns the names of the links of all possible nodes of a data directory.
func links(data string) []string {
	var names []string
	for index := range MaxNodes {
		names = append(names, Settings{ID: id(Dir(data, index))}.link())
	}
	return names
}

// usedNetworks returns the networks that this machine has routes to, by other links than these.
func usedNetworks(except []string) ([]netip.Prefix, error) {
	routes, err := os.ReadFile("/proc/net/route")
	if err != nil {
		return nil, fmt.Errorf("look for a network that is free: %w", err)
	}
	used, err := parseRoutes(string(routes), except)
	if err != nil {
		return nil, fmt.Errorf("look for a network that is free: /proc/net/route: %w", err)
	}
	return used, nil
}

// id is a short name for a directory, the same at every start.
func id(dir string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(dir)) // never fails
	return fmt.Sprintf("%08x", h.Sum32())
}

// File is where the settings are kept.
func (s Settings) File() string { return filepath.Join(s.Dir, "settings.json") }

// Credentials is the folder for what the node shows to the API.
func (s Settings) Credentials() string { return filepath.Join(s.Dir, "credentials") }

// Address is the node's own address, which the API and the machine reach it at.
func (s Settings) Address() netip.Addr {
	a := s.Network.Addr().As4()
	return netip.AddrFrom4([4]byte{a[0], a[1], 255, byte(4*s.Index + 2)})
}

// LoadBalancers is where Services of type LoadBalancer get their addresses from.
func (s Settings) LoadBalancers() netip.Prefix {
	a := s.Network.Addr().As4()
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{a[0], a[1], 253, 0}), 24)
}

// IPv6 returns the IPv6 network for one of IPv4. node/internal/settings has the same, and says why.
func IPv6(p netip.Prefix) netip.Prefix {
	a, bits := p.Addr().As4(), 32+p.Bits()
	if p.IsSingleIP() {
		bits = 128
	}
	return netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 'k', 'e', 'l', a[0], a[1], a[2], a[3]}), bits)
}

// ServicesIPv6 is the IPv6 network of Services. The API takes none that is larger.
func ServicesIPv6(services netip.Prefix) netip.Prefix {
	return netip.PrefixFrom(IPv6(services).Addr(), 112)
}

// APIAddress is the address of the API in every node.
func (s Settings) APIAddress() netip.Addr {
	a := s.Network.Addr().As4()
	return netip.AddrFrom4([4]byte{a[0], a[1], 254, 1})
}

// HostAddress is the machine's address on the link to the node, which Pods reach. It is not valid without root: then there is
// no link.
func (s Settings) HostAddress() netip.Addr {
	if s.Rootless != nil {
		return netip.Addr{}
	}
	return s.Address().Prev()
}

// link is the name of the machine's end of the link to the node.
func (s Settings) link() string { return "kn-" + s.ID }

// Encode returns the content of the file.
func (s Settings) Encode() ([]byte, error) {
	data, err := json.MarshalIndent(s, "", "  ")
	return append(data, '\n'), err
}

// readNetwork returns the network that settings name; none if there are no settings, or damaged ones.
func readNetwork(path string) (netip.Prefix, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return netip.Prefix{}, nil
	}
	if err != nil {
		return netip.Prefix{}, err
	}
	var s Settings
	if err := json.Unmarshal(data, &s); err != nil {
		return netip.Prefix{}, nil // they are about to be rewritten
	}
	return s.Network, nil
}

// The networks that nodes choose from are /16 of private addresses, above those that people choose by hand.
const firstNetwork, ownNetworks = 64, 160

func ownNetwork(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(firstNetwork + i%ownNetworks)}), 16)
}

// networksFor returns the networks for a node, the best first: the preferred one, if it is a /16. Where the others begin
// depends on the node, so that several of them seldom want the same one.
func networksFor(id string, preferred netip.Prefix) ([]netip.Prefix, error) {
	start, err := strconv.ParseUint(id, 16, 32)
	if err != nil {
		return nil, fmt.Errorf("ID of the node: %w", err)
	}
	all := make([]netip.Prefix, 0, ownNetworks+1)
	if preferred.IsValid() && preferred.Addr().Is4() && preferred.Bits() == 16 {
		all = append(all, preferred.Masked())
	}
	for i := range ownNetworks {
		all = append(all, ownNetwork(int(start%ownNetworks)+i))
	}
	return all, nil
}

func overlaps(p netip.Prefix, all []netip.Prefix) bool {
	for _, other := range all {
		if p.Overlaps(other) {
			return true
		}
	}
	return false
}

// parseRoutes reads the networks from the text of /proc/net/route, without the default route and those by some links.
func parseRoutes(text string, except []string) ([]netip.Prefix, error) {
	var networks []netip.Prefix
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		fields := strings.Fields(line)
		if i == 0 || len(fields) < 8 || slices.Contains(except, fields[0]) {
			continue
		}
		address, err := parseAddress(fields[1])
		if err != nil {
			return nil, err
		}
		mask, err := parseAddress(fields[7])
		if err != nil {
			return nil, err
		}
		bits := 0
		for _, b := range mask.AsSlice() {
			for ; b&0x80 != 0; b <<= 1 {
				bits++
			}
		}
		if bits > 0 {
			networks = append(networks, netip.PrefixFrom(address, bits))
		}
	}
	return networks, nil
}

// parseAddress reads an address the way the kernel prints it there: as a number in the order of bytes of the machine.
func parseAddress(text string) (netip.Addr, error) {
	n, err := strconv.ParseUint(text, 16, 32)
	if err != nil {
		return netip.Addr{}, err
	}
	var a [4]byte
	binary.NativeEndian.PutUint32(a[:], uint32(n))
	return netip.AddrFrom4(a), nil
}
