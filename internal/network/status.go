package network

import (
	"net/netip"
	"time"
)

// Status is what a switch knows about itself and its machines.
type Status struct {
	Namespace string          `json:"namespace"`
	Prefix    netip.Prefix    `json:"prefix"`
	StartedAt time.Time       `json:"startedAt"`
	Machines  []MachineStatus `json:"machines"` // in the order of Config
}

// MachineStatus is the state of a machine's port of the switch. Counters begin at zero when the process starts.
type MachineStatus struct {
	UID     string     `json:"uid"`
	Name    string     `json:"name"`
	Address netip.Addr `json:"address"`
	// Connected says that the switch is connected to the socket of QEMU; if not, Error says why.
	Connected bool   `json:"connected"`
	Error     string `json:"error,omitempty"`
	// Leased says that the machine uses its address: it asked for it by DHCP or has sent a packet from it.
	Leased   bool       `json:"leased"`
	LeasedAt *time.Time `json:"leasedAt,omitempty"` // the last answer of the DHCP server with the address
	// In is what the machine received, Out is what it sent.
	BytesIn    uint64 `json:"bytesIn"`
	BytesOut   uint64 `json:"bytesOut"`
	PacketsIn  uint64 `json:"packetsIn"`
	PacketsOut uint64 `json:"packetsOut"`
	// Drops are all dropped frames and refused connections; DropsBy has them by reason, see the constants.
	Drops   uint64            `json:"drops"`
	DropsBy map[string]uint64 `json:"dropsBy,omitempty"`
	// Connections are the open connections and flows through the gateway. Those between machines are not known to it.
	Connections int `json:"connections"`
	// Inbound are those of them that were made to the machine through a forward or from another network, and InboundTotal all of
	// these so far.
	Inbound      int             `json:"inbound"`
	InboundTotal uint64          `json:"inboundTotal"`
	Forwards     []ForwardStatus `json:"forwards,omitempty"` // in the order of Machine.Ports
}

// ForwardStatus is the state of a Forward.
type ForwardStatus struct {
	Forward
	Listening   bool   `json:"listening"`
	Error       string `json:"error,omitempty"` // why not; it is tried again
	Connections int    `json:"connections"`
}
