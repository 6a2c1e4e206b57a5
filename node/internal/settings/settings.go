// Package settings is the seam between Keelson and the program keelson-node: a file that says which node to run.
package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
)

// Settings say which node to run. Keelson's internal/node writes them, as JSON.
type Settings struct {
	// ID distinguishes this node from others on the same machine: 8 hexadecimal digits. Its cgroup and its link have it in their names.
	ID string `json:"id"`
	// Name of the Node object.
	Name string `json:"name"`
	// Dir is the node's directory: Credentials are in it, and what the node keeps.
	Dir string `json:"dir"`
	// Programs is the folder with the container runtime's shim, the CNI plugins and pause.
	Programs string `json:"programs"`
	// Kube is the path of keelson-kube.
	Kube string `json:"kube"`
	// Runtime is the path of runc, or of crun.
	Runtime string `json:"runtime"`
	// APIPort is the port of the API on the machine's loopback. It is the same inside the node.
	APIPort int `json:"apiPort"`
	// Network is a /16 that nothing else on the machine uses. The nodes of a control plane share it: for Pods its lower half, for
	// nodes its end.
	Network netip.Prefix `json:"network"`
	// Index is the place of this node among those of its control plane, from 0 on.
	Index int `json:"index,omitempty"`
	// Nodes is the number of nodes that share the machine equally. 0 means 1.
	Nodes int `json:"nodes,omitempty"`
	// Peers is the directory in which the nodes of a control plane find each other. Without it, the node has no links to others.
	Peers string `json:"peers,omitempty"`
	// Layers is the directory in which nodes of this machine share layers of images. Without it, the node shares none.
	Layers string `json:"layers,omitempty"`
	// Services is the network of the API's Services.
	Services netip.Prefix `json:"services"`
	// IPv6 says that the node has, beside each IPv4 network and address, that of IPv6 which Families derives from it.
	IPv6 bool `json:"ipv6,omitempty"`
	// ProxyMode is how kube-proxy makes Services reachable: iptables or nftables.
	ProxyMode string `json:"proxyMode"`
	// RestrictOOMScore is for a machine where root may not lower the OOM score of processes
	// than it is itself: without CAP_SYS_RESOURCE.
	RestrictOOMScore bool `json:"restrictOOMScore"`
	// Rootless, if set, is for a node that a user without root runs.
	Rootless *Rootless `json:"rootless,omitempty"`
}

// Rootless is what a node needs in the place of root.
type Rootless struct {
	// UIDs and GIDs are subordinate IDs of the user: those in the node from 1 on. ID 0 in the node is the user.
	UIDs IDs `json:"uids"`
	GIDs IDs `json:"gids"`
	// NewUIDMap, NewGIDMap and SystemdRun are the paths of the programs of these names.
	NewUIDMap  string `json:"newuidmap"`
	NewGIDMap  string `json:"newgidmap"`
	SystemdRun string `json:"systemdRun"`
	// RuntimeDir has the sockets of the user's systemd manager, which delegates a cgroup to the node.
	RuntimeDir string `json:"runtimeDir"`
	// Egress is the path, which may be relative to the working directory, of the socket at which the node connects kube-apiserver to Pods,
	// Services and kubelet: the host has no routes to them.
	Egress string `json:"egress"`
}

// IDs is a range of user or group IDs.
type IDs struct {
	First int `json:"first"`
	Count int `json:"count"`
}

// The files in Dir with what the node shows to the API, and what it knows the API by.
const (
	CA              = "credentials/ca.crt"
	KubeletCert     = "credentials/kubelet.crt"
	KubeletKey      = "credentials/kubelet.key"
	KubeletConfig   = "credentials/kubelet.kubeconfig"
	KubeProxyCert   = "credentials/kube-proxy.crt"
	KubeProxyKey    = "credentials/kube-proxy.key"
	KubeProxyConfig = "credentials/kube-proxy.kubeconfig"
	VolumesCert     = "credentials/volumes.crt"
	VolumesKey      = "credentials/volumes.key"
	PoliciesCert    = "credentials/policies.crt"
	PoliciesKey     = "credentials/policies.key"
)

// Provisioner is the name of the provisioner in the StorageClass for volumes of nodes. Volumes is the folder with them in Dir, and
// VolumesInside where it is inside the node.
const (
	Provisioner   = "keelson.dev/local"
	Volumes       = "volumes"
	VolumesInside = "/var/lib/keelson/volumes"
)

// ContainerdSocket is the file in Dir at which the node's containerd listens.
const ContainerdSocket = "containerd.sock"

var validID = regexp.MustCompile(`^[0-9a-f]{8}$`)

// Read reads settings and checks them.
func Read(path string) (Settings, error) {
	var s Settings
	data, err := os.ReadFile(path)
	if err != nil {
		return s, fmt.Errorf("read the settings of the node: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&s); err != nil {
		return s, fmt.Errorf("settings %s: %w", path, err)
	}
	if err := s.check(); err != nil {
		return s, fmt.Errorf("settings %s: %w", path, err)
	}
	return s, nil
}

func (s Settings) check() error {
	var errs []error
	if !validID.MatchString(s.ID) {
		errs = append(errs, fmt.Errorf("id %q: must be 8 hexadecimal digits", s.ID))
	}
	if s.Name == "" {
		errs = append(errs, errors.New("name: is required"))
	}
	paths := map[string]string{"dir": s.Dir, "programs": s.Programs, "kube": s.Kube, "runtime": s.Runtime}
	for field, path := range map[string]string{"peers": s.Peers, "layers": s.Layers} {
		if path != "" {
			paths[field] = path
		}
	}
	if r := s.Rootless; r != nil {
		maps.Copy(paths, map[string]string{
			"rootless.newuidmap": r.NewUIDMap, "rootless.newgidmap": r.NewGIDMap, "rootless.systemdRun": r.SystemdRun, "rootless.runtimeDir": r.RuntimeDir,
		})
		for field, ids := range map[string]IDs{"uids": r.UIDs, "gids": r.GIDs} {
			if ids.First <= 0 || ids.Count <= 0 {
				errs = append(errs, fmt.Errorf("rootless.%s: must be a range of IDs from 1 on", field))
			}
		}
		if r.Egress == "" {
			errs = append(errs, errors.New("rootless.egress: is required"))
		}
	}
	for field, path := range paths {
		if !filepath.IsAbs(path) {
			errs = append(errs, fmt.Errorf("%s %q: must be an absolute path", field, path))
		}
	}
	if s.APIPort <= 0 || s.APIPort > 65535 {
		errs = append(errs, fmt.Errorf("apiPort %d: must be from 1 to 65535", s.APIPort))
	}
	if !s.Network.IsValid() || !s.Network.Addr().Is4() || s.Network.Bits() != 16 || s.Network != s.Network.Masked() {
		errs = append(errs, fmt.Errorf("network %s: must be an IPv4 network of 16 bits", s.Network))
	}
	if s.Index < 0 || s.Index >= MaxNodes {
		errs = append(errs, fmt.Errorf("index %d: must be from 0 to %d", s.Index, MaxNodes-1))
	}
	if s.Nodes < 0 || s.Nodes > MaxNodes {
		errs = append(errs, fmt.Errorf("nodes %d: must be from 0 to %d", s.Nodes, MaxNodes))
	}
	if !s.Services.IsValid() {
		errs = append(errs, errors.New("services: is required"))
	}
	if s.ProxyMode != "iptables" && s.ProxyMode != "nftables" {
		errs = append(errs, fmt.Errorf("proxyMode %q: must be iptables or nftables", s.ProxyMode))
	}
	return errors.Join(errs...)
}

// Family derives the networks and addresses of an IP family from those of IPv4.
type Family func(netip.Prefix) netip.Prefix

// Families returns the IP families of the node. IPv4 is the first one.
func (s Settings) Families() []Family {
	families := []Family{func(p netip.Prefix) netip.Prefix { return p }}
	if s.IPv6 {
		families = append(families, IPv6)
	}
	return families
}

// IPv6 returns the IPv6 network for one of IPv4: of the unique local addresses of RFC 4193 those with "kel" after the first byte, and then
// the bits of IPv4. So networks that do not overlap do not overlap in IPv6 either. What is a single address stays one. Keelson's
// internal/node has the same.
func IPv6(p netip.Prefix) netip.Prefix {
	a, bits := p.Addr().As4(), 32+p.Bits()
	if p.IsSingleIP() {
		bits = 128
	}
	return netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 'k', 'e', 'l', a[0], a[1], a[2], a[3]}), bits)
}

// ServicesIPv6 is the IPv6 network of Services. The API takes none that is larger.
func (s Settings) ServicesIPv6() netip.Prefix {
	return netip.PrefixFrom(IPv6(s.Services).Addr(), 112)
}

// MaxNodes is the largest number of nodes that share a network.
const MaxNodes = 32

// podBits is the size of the Pod network of one node: 1022 addresses.
const podBits = 22

// AllPods is where the Pods of all nodes get their addresses from.
func (s Settings) AllPods() netip.Prefix { return netip.PrefixFrom(s.Network.Addr(), 17) }

// PodNetwork is where the Pods of this node get their addresses from.
func (s Settings) PodNetwork() netip.Prefix { return s.podNetwork(s.Index) }

func (s Settings) podNetwork(index int) netip.Prefix {
	a := s.Network.Addr().As4()
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{a[0], a[1], byte(index << (24 - podBits)), 0}), podBits)
}

// Peer returns the addresses of another node with the same network.
func (s Settings) Peer(index int) Peer {
	return Peer{Link: fmt.Sprintf("peer-%d", index), Address: s.linkAddress(index, 2).Addr(), Pods: s.podNetwork(index)}
}

// Peer is another node of the same control plane, as this one sees it.
type Peer struct {
	// Link is the name of this node's end of the link to the other one.
	Link    string
	Address netip.Addr
	Pods    netip.Prefix
}

// LoadBalancers is where Services of type LoadBalancer get their addresses from.
func (s Settings) LoadBalancers() netip.Prefix {
	a := s.Network.Addr().As4()
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{a[0], a[1], 253, 0}), 24)
}

// APIAddress is the address of the API in every node: the endpoint of the Service kubernetes. Each node has it for itself, so that
// Pods do not need another node to reach the API.
func (s Settings) APIAddress() netip.Addr {
	a := s.Network.Addr().As4()
	return netip.AddrFrom4([4]byte{a[0], a[1], 254, 1})
}

// HostAddress is the machine's address on the link between it and the node.
func (s Settings) HostAddress() netip.Prefix { return s.linkAddress(s.Index, 1) }

// NodeAddress is the node's address on the link between the machine and it.
func (s Settings) NodeAddress() netip.Prefix { return s.linkAddress(s.Index, 2) }

// linkAddress returns an address of the link between the machine and a node, which has four.
func (s Settings) linkAddress(index, host int) netip.Prefix {
	a := s.Network.Addr().As4()
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{a[0], a[1], 255, byte(4*index + host)}), 30)
}

// Link is the name of the machine's end of that link.
func (s Settings) Link() string { return "kn-" + s.ID }

// Reaches reports whether an address is one in the node: of itself, of a Pod or of a Service.
func (s Settings) Reaches(a netip.Addr) bool { return s.Network.Contains(a) || s.Services.Contains(a) }

// Cgroup is the name of the cgroup that all Pods are in: below the root of each hierarchy, or without root below the cgroup that is
// delegated to the node.
func (s Settings) Cgroup() string { return "keelson-" + s.ID }

// OutPort is the port of the node at which the connections of its Pods to other networks end.
const OutPort = 3129

// NamesPort is the port of the node at which its Pods ask for addresses of names.
const NamesPort = 53

// ClusterDomain is the end of all names of Services.
const ClusterDomain = "cluster.local"

// InnerLink is the name of the node's end.
const InnerLink = "eth0"
