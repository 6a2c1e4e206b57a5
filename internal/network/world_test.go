package network

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/link/ethernet"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

// patience is the longest that a test waits for something that has to happen.
const patience = time.Minute

// guest is a machine: a socket as QEMU's, and TCP/IP behind it.
type guest struct {
	t       testing.TB
	machine Machine
	stack   *stack.Stack
	card    *channel.Endpoint
	deaf    bool        // it does not read
	booting atomic.Bool // it reads, but its stack is not up
	arrived chan []byte // frames as they came; they are lost if nobody takes them

	mu        sync.Mutex
	conn      net.Conn
	connected chan struct{} // closed while there is a connection
}

// newGuest returns a machine of 10.77.N.0/24 that listens for the switch.
func newGuest(t testing.TB, name, address string) *guest {
	t.Helper()
	return makeGuest(t, name, address, false)
}

// newDeafGuest returns a machine that never reads what the switch sends.
func newDeafGuest(t testing.TB, name, address string) *guest {
	t.Helper()
	return makeGuest(t, name, address, true)
}

func makeGuest(t testing.TB, name, address string, deaf bool) *guest {
	t.Helper()
	addr := netip.MustParseAddr(address)
	b := addr.As4()
	g := &guest{
		t: t, deaf: deaf,
		machine:   Machine{UID: "uid-" + name, Name: name, Address: addr, MAC: fmt.Sprintf("52:54:00:00:%02x:%02x", b[2], b[3]), Socket: filepath.Join(shortDir(t), "nic.sock")},
		arrived:   make(chan []byte, 256),
		connected: make(chan struct{}),
	}
	g.newStack()
	listener, err := net.Listen("unix", g.machine.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go g.listen(listener)
	return g
}

// shortDir is a directory whose sockets have names that are short enough.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "net")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (g *guest) newStack() {
	g.stack = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4},
	})
	mac, _ := g.machine.hardwareAddr()
	g.card = channel.New(1024, mtu, tcpip.LinkAddress(mac))
	g.card.LinkEPCapabilities = stack.CapabilityResolutionRequired
	prefix, _ := g.machine.Address.Prefix(24)
	subnet, _ := tcpip.NewSubnet(toAddress(prefix.Addr()), tcpip.MaskFromBytes(net.CIDRMask(24, 32)))
	for _, err := range []tcpip.Error{
		g.stack.CreateNIC(nicID, ethernet.New(g.card)),
		g.stack.AddProtocolAddress(nicID, tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber,
			AddressWithPrefix: tcpip.AddressWithPrefix{Address: toAddress(g.machine.Address), PrefixLen: 24}}, stack.AddressProperties{}),
	} {
		if err != nil {
			g.t.Fatal(err)
		}
	}
	g.stack.SetRouteTable([]tcpip.Route{
		{Destination: subnet, NIC: nicID},
		{Destination: header.IPv4EmptySubnet, Gateway: toAddress(prefix.Addr().Next()), NIC: nicID},
	})
	ctx, cancel := context.WithCancel(context.Background())
	g.t.Cleanup(cancel)
	go func() {
		for {
			pkt := g.card.ReadContext(ctx)
			if pkt == nil {
				return
			}
			view := pkt.ToView()
			g.send(view.AsSlice())
			view.Release()
			pkt.DecRef()
		}
	}()
}

// listen takes one connection after another, as QEMU does.
func (g *guest) listen(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		g.mu.Lock()
		g.conn = conn
		close(g.connected)
		g.mu.Unlock()
		if !g.deaf {
			g.receive(conn)
		} else {
			<-g.t.Context().Done()
		}
		g.mu.Lock()
		g.conn = nil
		g.connected = make(chan struct{})
		g.mu.Unlock()
		_ = conn.Close()
	}
}

func (g *guest) receive(conn net.Conn) {
	for {
		var length [lengthLen]byte
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return
		}
		b := make([]byte, binary.BigEndian.Uint32(length[:]))
		if _, err := io.ReadFull(conn, b); err != nil {
			return
		}
		select {
		case g.arrived <- b:
		default:
		}
		if g.booting.Load() {
			continue
		}
		pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(b)})
		g.card.InjectInbound(0, pkt)
		pkt.DecRef()
	}
}

// wait returns when the switch is connected.
func (g *guest) wait() net.Conn {
	g.t.Helper()
	deadline := time.After(patience)
	for {
		g.mu.Lock()
		conn, connected := g.conn, g.connected
		g.mu.Unlock()
		if conn != nil {
			return conn
		}
		select {
		case <-connected:
		case <-deadline:
			g.t.Fatalf("%s: the switch does not connect", g.machine.Name)
		}
	}
}

// send sends a frame as it is, if the switch is connected.
func (g *guest) send(b []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conn != nil {
		_, _ = g.conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	}
}

func (g *guest) mac() [macLen]byte {
	addr, _ := g.machine.hardwareAddr()
	return [macLen]byte(addr)
}

// next returns the next frame for which wanted returns true.
func (g *guest) next(what string, wanted func([]byte) bool) []byte {
	g.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case b := <-g.arrived:
			if wanted(b) {
				return b
			}
		case <-deadline:
			g.t.Fatalf("%s: no %s has arrived", g.machine.Name, what)
		}
	}
}

// ask sends a frame until there is the answer for which wanted returns true, as TCP repeats what is lost.
func (g *guest) ask(what string, frame []byte, wanted func([]byte) bool) {
	g.t.Helper()
	repeat := time.NewTicker(time.Second)
	defer repeat.Stop()
	deadline := time.After(patience)
	for g.send(frame); ; {
		select {
		case b := <-g.arrived:
			if wanted(b) {
				return
			}
		case <-repeat.C:
			g.send(frame)
		case <-deadline:
			g.t.Fatalf("%s: no %s has arrived", g.machine.Name, what)
		}
	}
}

func full(address string) tcpip.FullAddress {
	addr := netip.MustParseAddrPort(address)
	return tcpip.FullAddress{NIC: nicID, Addr: toAddress(addr.Addr()), Port: addr.Port()}
}

// dial opens a TCP connection from the machine.
func (g *guest) dial(address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := gonet.DialContextTCP(ctx, g.stack, full(address), ipv4.ProtocolNumber)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

func (g *guest) dialUDP(address string) net.Conn {
	g.t.Helper()
	remote := full(address)
	conn, err := gonet.DialUDP(g.stack, nil, &remote, ipv4.ProtocolNumber)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// echoes serves a TCP port of the machine: it returns what it gets, behind its name.
func (g *guest) echoes(port uint16) {
	g.t.Helper()
	listener, err := gonet.ListenTCP(g.stack, tcpip.FullAddress{NIC: nicID, Port: port}, ipv4.ProtocolNumber)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = listener.Close() })
	go echo(listener, g.machine.Name)
}

func echo(listener net.Listener, name string) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = conn.Close() }()
			_, _ = io.WriteString(conn, name+":")
			_, _ = io.Copy(struct{ io.Writer }{conn}, struct{ io.Reader }{conn})
		}()
	}
}

// echoesUDP serves a UDP port of the machine.
func (g *guest) echoesUDP(port uint16) {
	g.t.Helper()
	conn, err := gonet.DialUDP(g.stack, &tcpip.FullAddress{NIC: nicID, Addr: toAddress(g.machine.Address), Port: port}, nil, ipv4.ProtocolNumber)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = conn.Close() })
	go echoPackets(conn, g.machine.Name)
}

func echoPackets(conn net.PacketConn, name string) {
	b := make([]byte, maxDatagram)
	for {
		n, from, err := conn.ReadFrom(b)
		if err != nil {
			return
		}
		_, _ = conn.WriteTo(append([]byte(name+":"), b[:n]...), from)
	}
}

// talk checks that a connection leads to the server with this name.
func talk(t testing.TB, conn net.Conn, name string) {
	t.Helper()
	_ = conn.SetDeadline(time.Now().Add(patience))
	want := name + ":hello"
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, len(want))
	if _, err := io.ReadFull(conn, b); err != nil || string(b) != want {
		t.Fatalf("got %q, %v, want %q", b, err, want)
	}
}

// talkOn checks that a connection on which talk succeeded still works.
func talkOn(t testing.TB, conn net.Conn) {
	t.Helper()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, "again"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 5)
	if _, err := io.ReadFull(conn, b); err != nil || string(b) != "again" {
		t.Fatalf("got %q, %v", b, err)
	}
}

// talkUDP checks that datagrams come back. It repeats them, as UDP loses some.
func talkUDP(t testing.TB, conn net.Conn, name, text string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	b := make([]byte, maxDatagram)
	for time.Now().Before(deadline) {
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		n, err := conn.Read(b)
		if err == nil {
			if got := string(b[:n]); got != name+":"+text {
				t.Fatalf("got %d bytes: %.80q", n, got)
			}
			return
		}
		if !isTimeout(err) {
			t.Fatal(err)
		}
	}
	t.Fatal("no datagram has come back")
}

// world is a switch with its directory.
type world struct {
	t      testing.TB
	dir    string
	config Config
	client *Client
	s      *netswitch
	// prepare changes each new switch before it serves.
	prepare func(*netswitch)
	stop    func()
}

// newWorld starts a switch with these machines in the network of a namespace: 10.77.N.0/24.
func newWorld(t testing.TB, namespace, prefix string, guests ...*guest) *world {
	t.Helper()
	w := &world{t: t, dir: shortDir(t), config: Config{Namespace: namespace, Prefix: netip.MustParsePrefix(prefix)}}
	w.client = NewClient(w.dir)
	for _, g := range guests {
		w.config.Machines = append(w.config.Machines, g.machine)
	}
	if err := WriteConfig(w.dir, w.config); err != nil {
		t.Fatal(err)
	}
	w.start()
	for _, g := range guests {
		g.wait()
		w.eventually("the switch knows that it is connected", func() bool { return w.machine(g).Connected })
	}
	return w
}

// start starts the switch as Serve does.
func (w *world) start() {
	w.t.Helper()
	config, err := readConfig(w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s, err := newSwitch(ctx, config)
	if err != nil {
		w.t.Fatal(err)
	}
	w.s = s
	if w.prepare != nil {
		w.prepare(s)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.serve(ctx, Options{Directory: w.dir, Log: io.Discard}, config) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("the switch has ended: %v", err)
		}
		for _, p := range s.table.Load().ports {
			<-p.done
		}
		s.stack.Close()
	})
	w.t.Cleanup(func() { w.stop() })
	w.eventually("the switch answers", func() bool {
		_, err := w.client.Status(context.Background())
		return err == nil
	})
}

// eventually waits for a condition.
func (w *world) eventually(what string, condition func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); !condition(); {
		if time.Now().After(deadline) {
			w.t.Fatalf("not within %s: %s; %+v", patience, what, w.status())
		}
		time.Sleep(5 * time.Millisecond) //nolint:forbidigo // the interval between two looks
	}
}

// apply changes the configuration.
func (w *world) apply(change func(*Config)) {
	w.t.Helper()
	machines := append([]Machine(nil), w.config.Machines...)
	w.config.Machines = machines
	change(&w.config)
	if err := w.client.Apply(context.Background(), w.config); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) status() Status {
	status, err := w.client.Status(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	return status
}

// machine is the status of a machine.
func (w *world) machine(g *guest) MachineStatus {
	w.t.Helper()
	for _, one := range w.status().Machines {
		if one.UID == g.machine.UID {
			return one
		}
	}
	w.t.Fatalf("no status of %s", g.machine.Name)
	return MachineStatus{}
}

// refused checks that a connection of a machine is refused, and at once.
func refused(t *testing.T, g *guest, address string) {
	t.Helper()
	begin := time.Now()
	conn, err := g.dial(address)
	if err == nil {
		_ = conn.Close()
		t.Errorf("%s reaches %s", g.machine.Name, address)
		return
	}
	if took := time.Since(begin); errors.Is(err, context.DeadlineExceeded) || took > 5*time.Second {
		t.Errorf("%s to %s is refused only after %s: %v", g.machine.Name, address, took, err)
	}
}
