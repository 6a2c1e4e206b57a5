//go:build linux

package node

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// reachMachine has a Pod connect to a server at the machine's end of the link to the node.
func reachMachine(t *testing.T, u *user) {
	needsLink(t)
	if client := u.ask(t, u.nodeAddress(t).Prev()); client.String() != u.field(t, "pod/web", "{.status.podIP}") {
		t.Errorf("the client address was %s", client)
	}
}

// reachOut has a Pod connect to a server in another network. For lack of another machine, it is an
// address of this one. The client must be this machine, so that a Pod reaches everything that the
// machine reaches.
func reachOut(t *testing.T, u *user) {
	at := u.otherAddress(t)
	if client := u.ask(t, at); client != at {
		t.Errorf("the client address at the server %s was %s", at, client)
	}
	u.askByUDP(t, at)
}

// answerMachine connects to a Pod from an address of this machine in another network. The responses
// must come back, and not be routed out like connections of the Pod.
func answerMachine(t *testing.T, u *user) {
	needsLink(t)
	at := u.otherAddress(t)
	pod := u.field(t, "pod/web", "{.status.podIP}") + ":8080"
	dialer := &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(at, 0)), Timeout: 10 * time.Second}
	client := http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}, Timeout: 20 * time.Second}
	response, err := client.Get("http://" + pod)
	if err != nil {
		t.Errorf("by TCP from %s: %v", at, err)
	} else {
		_ = response.Body.Close()
	}
	c, err := (&net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, 0))}).Dial("udp", pod)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 100)
	n, err := c.Read(answer)
	if err != nil || string(answer[:n]) != "hello" {
		t.Errorf("by UDP from %s: %q, %v", at, answer[:n], err)
	}
}

// needsLink skips the test without root: then the machine has no link to the node.
func needsLink(t *testing.T) {
	if rootless {
		t.Skip("SKIP: without root the machine has no link to the node")
	}
}

// otherAddress returns an address of this machine outside the node's network, or skips the test.
func (u *user) otherAddress(t *testing.T) netip.Addr {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	inside := netip.PrefixFrom(u.nodeAddress(t), 16).Masked()
	for _, address := range addresses {
		network, err := netip.ParsePrefix(address.String())
		if err != nil {
			t.Fatal(err)
		}
		if at := network.Addr(); at.Is4() && at.IsGlobalUnicast() && !inside.Contains(at) {
			return at
		}
	}
	t.Skip("SKIP: this machine has no network")
	return netip.Addr{}
}

func (u *user) nodeAddress(t *testing.T) netip.Addr {
	t.Helper()
	address, _, _ := strings.Cut(u.field(t, "node/keelson-node", `{.status.addresses[?(@.type=="InternalIP")].address}`), " ") // that of IPv4
	node, err := netip.ParseAddr(address)
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// ask has the Pod web connect to a server at an address of the machine, and returns the client
// address.
func (u *user) ask(t *testing.T, at netip.Addr) netip.Addr {
	t.Helper()
	clients := make(chan string, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { clients <- r.RemoteAddr }))
	defer server.Close()
	if err := server.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	var err error
	if server.Listener, err = net.Listen("tcp", netip.AddrPortFrom(at, 0).String()); err != nil {
		t.Fatal(err)
	}
	server.Start()
	transcript.Contains(t, u.kubectl(t, "exec", "web", "--", "/app", "get", server.URL), "200 OK")
	client, err := netip.ParseAddrPort(<-clients)
	if err != nil {
		t.Fatal(err)
	}
	return client.Addr()
}

func hostPort(t *testing.T, u *user) {
	needsLink(t)
	u.apply(t, `apiVersion: v1
kind: Pod
metadata: {name: door}
spec:
  containers:
  - {name: door, image: "app:v1", ports: [{containerPort: 8080, hostPort: 8088}]}
`)
	u.kubectl(t, "wait", "--for=condition=Ready", "pod/door", "--timeout", transcript.WaitTimeout.String())
	address := fmt.Sprintf("http://%s:8088", u.nodeAddress(t))
	transcript.Eventually(t, "it responds at the port of the node", func() bool {
		answer, err := tryGet(address)
		return err == nil && answer == "v1 on door\n"
	})
	u.kubectl(t, "delete", "pod", "door")
}

// askByUDP has the Pod web send a datagram to another network and expects a response larger than an
// MTU.
func (u *user) askByUDP(t *testing.T, at netip.Addr) {
	t.Helper()
	server, err := net.ListenPacket("udp4", netip.AddrPortFrom(at, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	filler := strings.Repeat(".", 4000)
	clients := make(chan string, 1)
	go func() {
		buffer := make([]byte, 100)
		n, from, err := server.ReadFrom(buffer)
		if err != nil {
			clients <- err.Error()
			return
		}
		_, _ = server.WriteTo([]byte(string(buffer[:n])+filler), from)
		clients <- from.String()
	}()
	if got := u.kubectl(t, "exec", "web", "--", "/app", "ask", server.LocalAddr().String(), "hello"); got != "hello"+filler+"\n" {
		t.Errorf("by UDP the answer is %.100q", got)
	}
	if client, err := netip.ParseAddrPort(<-clients); err != nil || client.Addr() != at {
		t.Errorf("the client address at the server %s was %s, %v", at, client, err)
	}
}
