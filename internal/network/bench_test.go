package network

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
)

// BenchmarkFrames is the way of full frames through a switch process, from one machine's socket to another's, without TCP/IP
// in this one: the limit of what machines can send each other.
func BenchmarkFrames(b *testing.B) {
	dir := shortDir(b)
	config := Config{Namespace: "one", Prefix: netip.MustParsePrefix("10.77.1.0/24")}
	var conns [2]net.Conn
	var listeners [2]net.Listener
	for i, name := range []string{"a", "b"} {
		machine := Machine{UID: name, Name: name, MAC: "52:54:00:00:01:0" + string(rune('2'+i)), Address: netip.AddrFrom4([4]byte{10, 77, 1, byte(2 + i)}), Socket: filepath.Join(dir, name)}
		config.Machines = append(config.Machines, machine)
		var err error
		if listeners[i], err = net.Listen("unix", machine.Socket); err != nil {
			b.Fatal(err)
		}
	}
	if err := WriteConfig(dir, config); err != nil {
		b.Fatal(err)
	}
	startProcess(b, dir)
	for i := range conns {
		var err error
		if conns[i], err = listeners[i].Accept(); err != nil {
			b.Fatal(err)
		}
	}
	from, to := [macLen]byte{0x52, 0x54, 0, 0, 1, 2}, [macLen]byte{0x52, 0x54, 0, 0, 1, 3}
	frame := appendUDP(appendEthernet(make([]byte, lengthLen), to, from, etherIPv4), netip.MustParseAddrPort("10.77.1.2:1"), netip.MustParseAddrPort("10.77.1.3:2"), make([]byte, mtu-ipv4Len-udpLen))
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-lengthLen))
	const window = 64 // frames on the way: what the switch never drops
	b.SetBytes(int64(len(frame) - lengthLen))
	tokens := make(chan struct{}, window)
	go func() {
		for range b.N {
			tokens <- struct{}{}
			if _, err := conns[0].Write(frame); err != nil {
				return
			}
		}
	}()
	b.ResetTimer()
	received := make([]byte, len(frame))
	for range b.N {
		if _, err := io.ReadFull(conns[1], received); err != nil {
			b.Fatal(err)
		}
		<-tokens
	}
}

// BenchmarkDial is a stream from a machine, with TCP/IP in this process, to the manager.
func BenchmarkDial(b *testing.B) {
	a := newGuest(b, "a", "10.77.1.2")
	w := newWorld(b, "one", "10.77.1.0/24", a)
	listener, err := gonet.ListenTCP(a.stack, tcpip.FullAddress{NIC: nicID, Port: 80}, ipv4.ProtocolNumber)
	if err != nil {
		b.Fatal(err)
	}
	const block = 64 << 10
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		for range b.N {
			if _, err := conn.Write(make([]byte, block)); err != nil {
				return
			}
		}
		_ = conn.Close()
	}()
	conn, err := w.client.Dial(context.Background(), a.machine.UID, TCP, 80)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(block)
	b.ResetTimer()
	if n, err := io.Copy(io.Discard, conn); err != nil || n != int64(b.N)*block {
		b.Fatalf("%d bytes, %v", n, err)
	}
}
