package network

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// up brings an interface up, which also lets the kernel configure IPv6 by what
// routers advertise.
func up(name string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return nil, err
	}
	return link, netlink.LinkSetUp(link)
}

// Loopback brings up the interface by which the guest speaks to itself.
func Loopback() error {
	_, err := up("lo")
	return err
}

// First returns the name of the interface of the machine: the first one that has a device.
func First() (string, error) {
	all, err := filepath.Glob("/sys/class/net/*/device") // sorted
	if err != nil || len(all) == 0 {
		return "", errors.Join(errors.New("there is no network interface"), err)
	}
	return filepath.Base(filepath.Dir(all[0])), nil
}

// Readdress takes the addresses from an interface that nobody keeps, and gives it another hardware address. It is down then.
func Readdress(name string, address net.HardwareAddr) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetDown(link); err != nil {
		return fmt.Errorf("take the interface %s down: %w", name, err)
	}
	addresses, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list the addresses of %s: %w", name, err)
	}
	for _, each := range addresses {
		if err := netlink.AddrDel(link, &each); err != nil {
			return fmt.Errorf("remove the address %s of %s: %w", each, name, err)
		}
	}
	if err := netlink.LinkSetHardwareAddr(link, address); err != nil {
		return fmt.Errorf("give %s the address %s: %w", name, address, err)
	}
	return nil
}

// apply gives the interface what settings say, and takes away the addresses of what
// it had before.
func apply(link netlink.Link, settings, before Settings) error {
	var errs []error
	if settings.MTU != 0 {
		errs = append(errs, netlink.LinkSetMTU(link, settings.MTU))
	}
	for _, address := range before.Addresses {
		if !slices.Contains(settings.Addresses, address) {
			errs = append(errs, netlink.AddrDel(link, &netlink.Addr{IPNet: ipNet(address)}))
		}
	}
	for _, address := range settings.Addresses {
		errs = append(errs, netlink.AddrReplace(link, &netlink.Addr{IPNet: ipNet(address)}))
	}
	for _, r := range settings.Routes {
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(r.To), Protocol: unix.RTPROT_DHCP}
		if r.Via.IsValid() {
			route.Gw = r.Via.AsSlice()
			// A gateway need not be in a network of ours; clouds give a /32.
			route.Flags = int(netlink.FLAG_ONLINK)
		} else {
			route.Scope = netlink.SCOPE_LINK
		}
		if err := netlink.RouteReplace(route); err != nil {
			errs = append(errs, fmt.Errorf("route to %s: %w", r.To, err))
		}
	}
	return errors.Join(errs...)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// resolver writes the name servers of all interfaces to one file.
type resolver struct {
	file string

	mu          sync.Mutex
	byInterface map[string]Settings
}

// set remembers an interface's settings and writes the file anew.
func (r *resolver) set(name string, settings Settings) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byInterface[name] = settings
	return os.WriteFile(r.file, []byte(resolvConf(r.byInterface)), 0o644)
}

// resolvConf is the content of /etc/resolv.conf, see resolv.conf(5): interfaces by
// name, nothing twice.
func resolvConf(byInterface map[string]Settings) string {
	var search, servers []string
	for _, name := range slices.Sorted(maps.Keys(byInterface)) {
		for _, domain := range byInterface[name].Search {
			if !slices.Contains(search, domain) {
				search = append(search, domain)
			}
		}
		for _, server := range byInterface[name].Nameservers {
			if line := "nameserver " + server.String() + "\n"; !slices.Contains(servers, line) {
				servers = append(servers, line)
			}
		}
	}
	text := strings.Join(servers, "")
	if len(search) != 0 {
		text = "search " + strings.Join(search, " ") + "\n" + text
	}
	return text
}
