package network

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/keelson-dev/keelson/guest/internal/agent"
)

// Interfaces tells of all interfaces, as the agent protocol has it.
func Interfaces() ([]agent.Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var list []agent.Interface
	for _, i := range all {
		found, err := i.Addrs()
		if err != nil {
			continue // the interface has just gone
		}
		list = append(list, agent.Interface{
			Name: i.Name, HardwareAddress: hardwareAddress(i),
			Addresses: agentAddresses(found), Statistics: statistics("/sys/class/net", i.Name),
		})
	}
	return list, nil
}

// hardwareAddress is as QEMU's own agent has it: zeros for the loopback.
func hardwareAddress(i net.Interface) string {
	if i.Flags&net.FlagLoopback != 0 {
		return "00:00:00:00:00:00"
	}
	return i.HardwareAddr.String()
}

func agentAddresses(found []net.Addr) []agent.Address {
	var list []agent.Address
	for _, address := range found {
		network, ok := address.(*net.IPNet)
		if !ok {
			continue
		}
		bits, _ := network.Mask.Size()
		kind := "ipv6"
		if network.IP.To4() != nil {
			kind = "ipv4"
		}
		list = append(list, agent.Address{IP: network.IP.String(), Type: kind, Prefix: bits})
	}
	return list
}

// statistics reads the counters in the folder of an interface below root; what cannot
// be read is zero.
func statistics(root, name string) *agent.Statistics {
	var s agent.Statistics
	for file, value := range map[string]*uint64{
		"rx_bytes": &s.RxBytes, "rx_packets": &s.RxPackets, "rx_errors": &s.RxErrors, "rx_dropped": &s.RxDropped,
		"tx_bytes": &s.TxBytes, "tx_packets": &s.TxPackets, "tx_errors": &s.TxErrors, "tx_dropped": &s.TxDropped,
	} {
		text, err := os.ReadFile(filepath.Join(root, name, "statistics", file))
		if err == nil {
			*value, _ = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64) // zero if it is no number
		}
	}
	return &s
}
