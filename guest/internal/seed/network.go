package seed

import (
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// NetworkConfig says how the interfaces are configured that it names; all others get
// DHCP. It is the part of Netplan's version 2 that a small guest needs.
type NetworkConfig struct {
	Interfaces []InterfaceConfig
}

// InterfaceConfig is for the interface with this hardware address or, where that is
// empty, for those whose name fits the pattern (as of path.Match).
type InterfaceConfig struct {
	HardwareAddress string
	Name            string
	// DHCP asks for DHCP; the rest is for interfaces without.
	DHCP        bool
	Addresses   []netip.Prefix
	Routes      []RouteConfig
	Nameservers []netip.Addr
	Search      []string
	MTU         int
}

// RouteConfig leads to a network by way of a gateway.
type RouteConfig struct {
	To  netip.Prefix
	Via netip.Addr
}

// For returns what is configured for an interface, or nil.
func (c *NetworkConfig) For(name, hardwareAddress string) *InterfaceConfig {
	if c == nil {
		return nil
	}
	for i := range c.Interfaces {
		candidate := &c.Interfaces[i]
		if candidate.HardwareAddress != "" {
			if strings.EqualFold(candidate.HardwareAddress, hardwareAddress) {
				return candidate
			}
			continue
		}
		if ok, err := path.Match(candidate.Name, name); ok && err == nil {
			return candidate
		}
	}
	return nil
}

type networkFile struct {
	Version   int                       `yaml:"version"`
	Ethernets map[string]ethernet       `yaml:"ethernets"`
	Network   *networkFile              `yaml:"network"`
	Rest      map[string]map[string]any `yaml:",inline"`
}

type ethernet struct {
	Match struct {
		Name       string `yaml:"name"`
		MACAddress string `yaml:"macaddress"`
	} `yaml:"match"`
	DHCP4       bool     `yaml:"dhcp4"`
	Addresses   []string `yaml:"addresses"`
	Gateway4    string   `yaml:"gateway4"`
	Gateway6    string   `yaml:"gateway6"`
	MTU         int      `yaml:"mtu"`
	Nameservers struct {
		Addresses []string `yaml:"addresses"`
		Search    []string `yaml:"search"`
	} `yaml:"nameservers"`
	Routes []struct {
		To  string `yaml:"to"`
		Via string `yaml:"via"`
	} `yaml:"routes"`
}

// readNetworkConfig reads version 2. Version 1 is reported, and DHCP used instead.
func (s *Seed) readNetworkConfig(content []byte) error {
	var version struct {
		Version int                   `yaml:"version"`
		Network struct{ Version int } `yaml:"network"`
	}
	if err := yaml.Unmarshal(content, &version); err != nil {
		return err
	}
	if v := max(version.Version, version.Network.Version); v != 2 {
		if v != 0 {
			s.ignore(fmt.Sprintf("network-config of version %d", v))
		}
		return nil
	}
	var file networkFile
	if err := yaml.Unmarshal(content, &file); err != nil {
		return err
	}
	if file.Network != nil {
		file = *file.Network
	}
	config := &NetworkConfig{}
	for _, name := range slices.Sorted(maps.Keys(file.Ethernets)) {
		found, err := file.Ethernets[name].config(name)
		if err != nil {
			return fmt.Errorf("ethernets.%s: %w", name, err)
		}
		config.Interfaces = append(config.Interfaces, found)
	}
	s.Network = config
	for _, name := range slices.Sorted(maps.Keys(file.Rest)) {
		s.ignore("network-config " + name)
	}
	return nil
}

// config checks what is written. Without a match, the key is the interface's name.
func (e ethernet) config(name string) (InterfaceConfig, error) {
	config := InterfaceConfig{
		HardwareAddress: e.Match.MACAddress, Name: e.Match.Name,
		DHCP: e.DHCP4, Search: e.Nameservers.Search, MTU: e.MTU,
	}
	if config.HardwareAddress == "" && config.Name == "" {
		config.Name = name
	}
	for _, text := range e.Addresses {
		address, err := netip.ParsePrefix(text)
		if err != nil {
			return InterfaceConfig{}, fmt.Errorf("addresses: %w", err)
		}
		config.Addresses = append(config.Addresses, address)
	}
	for _, text := range e.Nameservers.Addresses {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return InterfaceConfig{}, fmt.Errorf("nameservers: %w", err)
		}
		config.Nameservers = append(config.Nameservers, address)
	}
	for _, gateway := range []string{e.Gateway4, e.Gateway6} {
		if gateway == "" {
			continue
		}
		if err := config.addRoute("default", gateway); err != nil {
			return InterfaceConfig{}, err
		}
	}
	for _, route := range e.Routes {
		if err := config.addRoute(route.To, route.Via); err != nil {
			return InterfaceConfig{}, err
		}
	}
	return config, nil
}

// addRoute takes a network, or "default" for everything.
func (c *InterfaceConfig) addRoute(to, via string) error {
	gateway, err := netip.ParseAddr(via)
	if err != nil {
		return fmt.Errorf("routes: %w", err)
	}
	network := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if gateway.Is6() {
		network = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	if to != "default" {
		if network, err = netip.ParsePrefix(to); err != nil {
			return fmt.Errorf("routes: %w", err)
		}
	}
	c.Routes = append(c.Routes, RouteConfig{To: network, Via: gateway})
	return nil
}
