package network

import (
	"errors"
	"fmt"
	"net/netip"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

const (
	nicID = 1

	// Buffers of a TCP connection on the gateway's side, in bytes. They bound what a machine can make this process hold: one
	// with many connections has small ones for the rest.
	defaultTCPBuffer = 256 << 10
	maxTCPBuffer     = 512 << 10
	smallTCPBuffer   = 32 << 10
	fewConnections   = 64
)

// newStack makes the TCP/IP of the gateway. It takes packets for any address, so that the forwarders can connect machines to
// what is behind it.
func (s *netswitch) newStack(gateway netip.Addr) error {
	s.link = &link{owner: s}
	s.stack = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4},
	})
	receive := tcpip.TCPReceiveBufferSizeRangeOption{Min: 4 << 10, Default: defaultTCPBuffer, Max: maxTCPBuffer}
	transmit := tcpip.TCPSendBufferSizeRangeOption{Min: 4 << 10, Default: defaultTCPBuffer, Max: maxTCPBuffer}
	sack := tcpip.TCPSACKEnabled(true)
	address := tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: toAddress(gateway).WithPrefix()}
	for _, err := range []tcpip.Error{
		s.stack.SetTransportProtocolOption(tcp.ProtocolNumber, &receive),
		s.stack.SetTransportProtocolOption(tcp.ProtocolNumber, &transmit),
		s.stack.SetTransportProtocolOption(tcp.ProtocolNumber, &sack),
		s.stack.CreateNIC(nicID, s.link),
		s.stack.AddProtocolAddress(nicID, address, stack.AddressProperties{}),
		s.stack.SetPromiscuousMode(nicID, true),
		s.stack.SetSpoofing(nicID, true),
	} {
		if err != nil {
			return fmt.Errorf("set up TCP/IP: %s", err)
		}
	}
	s.stack.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nicID}})
	s.tcp = tcp.NewForwarder(s.stack, defaultTCPBuffer, maxInFlight, s.acceptTCP)
	s.udp = udp.NewForwarder(s.stack, s.acceptUDP)
	s.stack.SetTransportProtocolHandler(tcp.ProtocolNumber, s.handleTCP)
	s.stack.SetTransportProtocolHandler(udp.ProtocolNumber, s.handleUDP)
	return nil
}

// link is the network card of the gateway. It needs no address resolution: a packet goes to the machine that has its
// destination address.
type link struct {
	owner      *netswitch
	dispatcher stack.NetworkDispatcher
}

var _ stack.LinkEndpoint = (*link)(nil)

// deliver hands a packet of a machine to the stack, which copies it.
func (l *link) deliver(packet ipv4Packet) {
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(packet)})
	l.dispatcher.DeliverNetworkPacket(ipv4.ProtocolNumber, pkt)
	pkt.DecRef()
}

// WritePackets sends packets of the stack to machines.
func (l *link) WritePackets(packets stack.PacketBufferList) (int, tcpip.Error) {
	t := l.owner.table.Load()
	for _, pkt := range packets.AsSlice() {
		to := netipAddr(header.IPv4(pkt.NetworkHeader().Slice()).DestinationAddressSlice())
		p := t.byAddr[to]
		if size := pkt.Size(); p == nil || size > mtu {
			continue // lost, as on any network
		}
		p.sendFrom(func(b []byte) []byte {
			b = appendEthernet(b, p.mac, gatewayMAC, etherIPv4)
			for _, part := range pkt.AsSlices() {
				b = append(b, part...)
			}
			return b
		})
	}
	return packets.Len(), nil
}

// MTU is that of the network.
func (l *link) MTU() uint32 { return mtu }

// SetMTU does nothing: the MTU is fixed.
func (l *link) SetMTU(uint32) {}

// MaxHeaderLength is 0: the header of the frame is written apart from the packet.
func (l *link) MaxHeaderLength() uint16 { return 0 }

// LinkAddress is the MAC address of the gateway.
func (l *link) LinkAddress() tcpip.LinkAddress { return tcpip.LinkAddress(gatewayMAC[:]) }

// SetLinkAddress does nothing: the address is fixed.
func (l *link) SetLinkAddress(tcpip.LinkAddress) {}

// Capabilities says that checksums need no check: nothing changes a byte between QEMU and this process.
func (l *link) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityRXChecksumOffload
}

// Attach is called by the stack.
func (l *link) Attach(dispatcher stack.NetworkDispatcher) { l.dispatcher = dispatcher }

// IsAttached reports whether the stack uses the link.
func (l *link) IsAttached() bool { return l.dispatcher != nil }

// Wait returns at once: there are no goroutines.
func (l *link) Wait() {}

// ARPHardwareType is none: the switch itself answers ARP.
func (l *link) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareNone }

// AddHeader does nothing: WritePackets writes the header.
func (l *link) AddHeader(*stack.PacketBuffer) {}

// ParseHeader does nothing: packets are delivered without one.
func (l *link) ParseHeader(*stack.PacketBuffer) bool { return true }

// Close does nothing: the link lasts as long as the process.
func (l *link) Close() {}

// SetOnCloseAction does nothing, as Close.
func (l *link) SetOnCloseAction(func()) {}

func toAddress(addr netip.Addr) tcpip.Address { return tcpip.AddrFrom4(addr.As4()) }

func netipAddr(b []byte) netip.Addr { return netip.AddrFrom4([4]byte(b)) }

func addrPort(addr tcpip.Address, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4(addr.As4()), port)
}

// stackError is an error of the stack as a Go error.
func stackError(err tcpip.Error) error {
	if err == nil {
		return nil
	}
	if _, refused := err.(*tcpip.ErrConnectionRefused); refused {
		return ErrRefused
	}
	return errors.New(err.String())
}
