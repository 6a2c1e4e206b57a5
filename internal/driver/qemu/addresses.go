package qemu

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"math/bits"
	"net/netip"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// NetworkBits is the length of the prefix of the network of a namespace, which has room for 1021 machines.
const NetworkBits = 22

// DefaultNetworkRanges are the ranges from which namespaces get their networks. The first ones are rarely used by others.
var DefaultNetworkRanges = []netip.Prefix{
	netip.MustParsePrefix("10.208.0.0/12"), netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("100.64.0.0/10"),
}

// CheckNetworkRange rejects a range from which no namespace could get a network.
func CheckNetworkRange(network netip.Prefix) error {
	switch {
	case !network.Addr().Is4() || network.Bits() > NetworkBits:
		return fmt.Errorf("%s is not an IPv4 network of at least a /%d", network, NetworkBits)
	case network != network.Masked():
		return fmt.Errorf("%s is not a network: the first address of it is %s", network, network.Masked().Addr())
	case network.Bits() < 8 || network.Addr().IsLoopback() || network.Addr().IsLinkLocalUnicast() || network.Addr().IsMulticast():
		return fmt.Errorf("%s is not a network for machines, such as 10.208.0.0/12", network)
	}
	return nil
}

// errNoNetwork means that no network is left for a namespace.
var errNoNetwork = errors.New("no network is left for the namespace")

// choosePrefix returns the first network in ranges that overlaps none in taken.
func choosePrefix(ranges, taken []netip.Prefix) (netip.Prefix, error) {
	for _, from := range ranges {
		for candidate := netip.PrefixFrom(from.Addr(), NetworkBits); from.Contains(candidate.Addr()); {
			obstacle := overlapping(candidate, taken)
			if !obstacle.IsValid() {
				return candidate, nil
			}
			candidate = after(candidate, obstacle)
			if !candidate.IsValid() {
				break
			}
		}
	}
	return netip.Prefix{}, fmt.Errorf("%w: all of %s are used by other namespaces or by routes of the host; set virtualMachines.networkRange",
		errNoNetwork, join(ranges))
}

// overlapping returns a network in taken that overlaps candidate; an invalid one if there is none.
func overlapping(candidate netip.Prefix, taken []netip.Prefix) netip.Prefix {
	for _, network := range taken {
		if network.Overlaps(candidate) {
			return network
		}
	}
	return netip.Prefix{}
}

// after returns the first network of a namespace behind both of two overlapping networks, an invalid one at the end of
// the address space.
func after(candidate, obstacle netip.Prefix) netip.Prefix {
	length := min(candidate.Bits(), obstacle.Bits())
	first := netip.PrefixFrom(candidate.Addr(), length).Masked().Addr()
	next := uint64(number(first)) + 1<<(32-length)
	if next > 1<<32-1 {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(address(uint32(next)), NetworkBits)
}

func number(ip netip.Addr) uint32 {
	raw := ip.As4()
	return binary.BigEndian.Uint32(raw[:])
}

func address(number uint32) netip.Addr {
	var raw [4]byte
	binary.BigEndian.PutUint32(raw[:], number)
	return netip.AddrFrom4(raw)
}

func join(networks []netip.Prefix) string {
	var words []string
	for _, network := range networks {
		words = append(words, network.String())
	}
	return strings.Join(words, ", ")
}

// gateway returns the address of the switch in a network: its first one.
func gateway(network netip.Prefix) netip.Addr { return network.Addr().Next() }

// chooseAddress returns an address in a network that is not taken. It begins with a number that depends on the machine,
// so that a machine rarely gets the address that another one has just given up.
func chooseAddress(network netip.Prefix, uid types.UID, taken map[netip.Addr]bool) (netip.Addr, error) {
	first := number(gateway(network)) + 1
	count := uint32(1)<<(32-network.Bits()) - 3 // without the address of the network, the gateway and the broadcast address
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(uid)) // never fails
	start := hash.Sum32() % count
	for i := range count {
		if candidate := address(first + (start+i)%count); !taken[candidate] {
			return candidate, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("the network %s has no free address: it has %d machines", network, count)
}

// routeFile is the routing table of the host. Tests replace it.
var routeFile = "/proc/net/route"

// hostRoutes returns the networks that the host has routes to, without the default route.
func hostRoutes() ([]netip.Prefix, error) {
	file, err := os.Open(routeFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // another operating system: networks are private to the machines all the same
	}
	if err != nil {
		return nil, fmt.Errorf("read the routes of the host: %w", err)
	}
	defer file.Close()
	return parseRoutes(file)
}

// parseRoutes reads a table in the format of /proc/net/route: numbers are in the byte order of the host.
func parseRoutes(table io.Reader) ([]netip.Prefix, error) {
	var all []netip.Prefix
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 8 || fields[0] == "Iface" {
			continue
		}
		destination, err := hexNumber(fields[1])
		if err != nil {
			return nil, err
		}
		mask, err := hexNumber(fields[7])
		if err != nil {
			return nil, err
		}
		if mask != 0 { // else it is the default route
			all = append(all, netip.PrefixFrom(address(destination), bits.LeadingZeros32(^mask)).Masked())
		}
	}
	return all, lines.Err()
}

// hexNumber parses a number of /proc/net/route and returns it in network byte order.
func hexNumber(text string) (uint32, error) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != 4 {
		return 0, fmt.Errorf("read the routes of the host: %q is not an address", text)
	}
	var number [4]byte
	binary.NativeEndian.PutUint32(number[:], binary.BigEndian.Uint32(raw))
	return binary.BigEndian.Uint32(number[:]), nil
}
