package host

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/node/internal/settings"
)

const (
	// maxFlows is how many flows of datagrams there can be at a time, each with a socket of this machine. What would begin
	// another one is lost, as datagrams may be.
	maxFlows = 1024
	// flowTimeout is how long a flow may be silent before it is forgotten.
	flowTimeout = time.Minute
	// sendTimeout is how long one datagram may wait for room on its way out; the others wait behind it.
	sendTimeout = 100 * time.Millisecond
	// maxAnswer is how many bytes an answer may have. Longer ones are lost: each flow has room for one.
	maxAnswer = 8192
)

// datagrams leads the datagrams of Pods out, from this machine, and brings the answers back. For each port of a Pod and
// each target there is a socket, which takes nothing from anybody else.
type datagrams struct {
	tunnel  io.ReadWriter // IP packets, one at a time
	pods    netip.Prefix  // where datagrams may come from, and answers go
	dial    func(to netip.AddrPort) (net.Conn, error)
	slots   *shares
	timeout time.Duration

	mu    sync.Mutex
	flows map[flow]net.Conn
}

// flow is what the datagrams from one socket to another have in common.
type flow struct{ from, to netip.AddrPort }

// newDatagrams returns what leads out the datagrams that come out of a tunnel, of which it makes use until that is closed.
// Of the descriptors of this process, of which so many may be open, an eighth is for them.
func newDatagrams(tunnel io.ReadWriter, s settings.Settings, descriptors uint64) *datagrams {
	return &datagrams{
		tunnel: tunnel, pods: s.PodNetwork(), slots: newShares(slotsFor(descriptors/8, maxFlows)), timeout: flowTimeout, flows: map[flow]net.Conn{},
		dial: func(to netip.AddrPort) (net.Conn, error) { return dialTarget(outwardDatagrams, "udp4", to, s) },
	}
}

// serve leads datagrams out until the tunnel is closed. Other packets are dropped.
func (d *datagrams) serve() {
	defer d.forget()
	packet := make([]byte, maxPacket)
	for {
		n, err := d.tunnel.Read(packet)
		if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) || errors.Is(err, unix.EBADFD) { // the last: its link is gone
			return
		}
		if err != nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		f, payload, ok := parseDatagram(packet[:n])
		if !ok || !d.pods.Contains(f.from.Addr()) {
			continue
		}
		if c := d.socket(f); c != nil {
			_ = c.SetWriteDeadline(time.Now().Add(sendTimeout)) // it may have been closed
			_, _ = c.Write(payload)                             // what cannot be sent is lost
		}
	}
}

// socket returns the socket of a flow, which stays for a while; nil if there can be none, such as for a Pod with its share.
func (d *datagrams) socket(f flow) net.Conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.flows[f]
	if c == nil {
		pod := f.from.Addr()
		if !d.slots.take(pod) {
			return nil
		}
		var err error
		if c, err = d.dial(f.to); err != nil {
			d.slots.give(pod)
			return nil
		}
		d.flows[f] = c
		go d.bringBack(f, c)
	}
	_ = c.SetReadDeadline(time.Now().Add(d.timeout)) // it may have been closed
	return c
}

// bringBack returns the answers of a flow until it is silent, or its target reports that the port is closed.
func (d *datagrams) bringBack(f flow, c net.Conn) {
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		_ = c.Close() // nothing waits to be sent
		delete(d.flows, f)
		d.slots.give(f.from.Addr())
	}()
	packet := make([]byte, headersLength+maxAnswer+1)
	for id := uint16(0); ; id++ {
		n, err := c.Read(packet[headersLength:])
		if err != nil {
			return
		}
		_ = c.SetReadDeadline(time.Now().Add(d.timeout)) // it may have been closed
		if n > maxAnswer {
			continue // it was longer than that, and is cut off
		}
		writeHeaders(packet[:headersLength+n], flow{from: f.to, to: f.from}, id)
		_, _ = d.tunnel.Write(packet[:headersLength+n]) // what cannot be sent is lost
	}
}

// forget ends all flows.
func (d *datagrams) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.flows {
		_ = c.Close() // and bringBack does the rest
	}
}

// outwardDatagrams connects to what outward does, as long as that is one machine: neither everybody in a network of this
// machine, nor a group.
var outwardDatagrams = &net.Dialer{
	Control: func(network, address string, socket syscall.RawConn) error {
		if err := outward.Control(network, address, socket); err != nil {
			return err
		}
		if to, err := netip.ParseAddrPort(address); err != nil || to.Addr().IsMulticast() {
			return errors.Join(err, fmt.Errorf("%s is a group", address))
		}
		var failed error
		err := socket.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 0) })
		return errors.Join(err, failed)
	},
}
