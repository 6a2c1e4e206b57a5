package host

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Pods are told apart by their addresses. On loopback every address is there.
var floodingPod, otherPod = net.IPv4(127, 0, 0, 2), net.IPv4(127, 0, 0, 3)

// flood asks for names that do not exist, as fast as it can, on several sockets, until the test has ended. It does not
// wait for answers.
func flood(t *testing.T, server net.Addr, name func(i int) string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for socket := range 16 {
		c, err := dialFrom(floodingPod, server)
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			defer func() { _ = c.Close() }()
			for i := 0; ctx.Err() == nil; i++ {
				_, _ = c.Write(newQuestion(t, uint16(i), name(i*16+socket)))
			}
		})
	}
	t.Cleanup(func() { stop(); all.Wait() })
}

func dialFrom(pod net.IP, server net.Addr) (net.Conn, error) {
	return (&net.Dialer{LocalAddr: &net.UDPAddr{IP: pod}}).Dial("udp4", server.String())
}

// newQuestion returns a message that asks for the address of a name.
func newQuestion(t *testing.T, id uint16, name string) []byte {
	t.Helper()
	message, err := (&dnsmessage.Message{
		Header:    dnsmessage.Header{ID: id, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}).Pack()
	if err != nil {
		t.Error(err)
	}
	return message
}

// askFrom returns the addresses of a name, as the Pod with an address gets them. A lost datagram is an error, as is an
// answer that takes as long as clients wait.
func askFrom(t *testing.T, pod net.IP, server net.Addr, name string) ([]netip.Addr, error) {
	t.Helper()
	c, err := dialFrom(pod, server)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return nil, err
	}
	if _, err := c.Write(newQuestion(t, 1, name)); err != nil {
		return nil, err
	}
	buffer := make([]byte, maxDatagram)
	size, err := c.Read(buffer)
	if err != nil {
		return nil, err
	}
	var said dnsmessage.Message
	if err := said.Unpack(buffer[:size]); err != nil {
		return nil, err
	}
	var addresses []netip.Addr
	for _, answer := range said.Answers {
		if a, ok := answer.Body.(*dnsmessage.AResource); ok {
			addresses = append(addresses, netip.AddrFrom4(a.A))
		}
	}
	return addresses, nil
}

func TestOnePodDoesNotStallTheNamesOfOthers(t *testing.T) {
	for _, test := range []struct {
		reason string
		name   func(i int) string
	}{
		{"names that no Service has", func(i int) string { return fmt.Sprintf("no-%d.default.svc.cluster.local.", i) }},
		{"names of the outside, whose server does not answer", func(i int) string { return fmt.Sprintf("no-%d.example.com.", i) }},
	} {
		t.Run(test.reason, func(t *testing.T) {
			silent, err := net.ListenPacket("udp4", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = silent.Close() })
			n, _ := newSyncedNames(t, silent.LocalAddr().String())
			server := startNames(t, n)
			flood(t, server, test.name)
			var slowest time.Duration
			for i := range 50 {
				start := time.Now()
				got, err := askFrom(t, otherPod, server, plainName)
				if err != nil || !slices.Equal(got, []netip.Addr{netip.MustParseAddr("10.96.0.7")}) {
					t.Fatalf("question %d of another Pod: %v, %v", i, got, err)
				}
				slowest = max(slowest, time.Since(start))
			}
			t.Logf("The slowest of the other Pod's questions took %s", slowest)
		})
	}
}
