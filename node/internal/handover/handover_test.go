package handover

import (
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestHandover(t *testing.T) {
	ours, theirs, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ours.Close() }()
	fd, err := unix.Dup(int(theirs.Fd())) // the other process has a descriptor of its own
	if err != nil {
		t.Fatal(err)
	}
	if err := theirs.Close(); err != nil {
		t.Fatal(err)
	}
	inside, err := Open(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = inside.Close() }()

	if err := Go(ours); err != nil {
		t.Fatal(err)
	}
	if err := Await(inside); err != nil {
		t.Fatal(err)
	}
	var addresses []string
	listen := func() net.Listener {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, l.Addr().String())
		return l
	}
	var names []net.PacketConn
	var want []string
	for range NamesSockets {
		socket, err := net.ListenPacket("udp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		names, want = append(names, socket), append(want, socket.LocalAddr().String())
	}
	tunnel, tunnelEnd, err := os.Pipe() // any file that does not block
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tunnelEnd.Close() }()
	if err := Send(inside, &Sockets{API: listen(), Proxy: listen(), Out: listen(), NamesTCP: listen(), Names: names, Tunnel: tunnel}); err != nil {
		t.Fatal(err)
	}
	sockets, err := Receive(ours)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sockets.Close() }()
	var got []string
	for _, socket := range sockets.Names {
		got = append(got, socket.LocalAddr().String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("questions are asked at %q, want %q", got, want)
	}
	if _, err := tunnelEnd.WriteString("packet"); err != nil {
		t.Fatal(err)
	}
	packet := make([]byte, 100)
	if n, err := sockets.Tunnel.Read(packet); err != nil || string(packet[:n]) != "packet" {
		t.Errorf("the tunnel has %q, %v", packet[:n], err)
	}
	if err := sockets.Tunnel.SetReadDeadline(time.Now()); err != nil {
		t.Errorf("the tunnel blocks: %v", err)
	}
	for i, l := range []net.Listener{sockets.API, sockets.Proxy, sockets.Out, sockets.NamesTCP} {
		client, err := net.Dial("tcp", addresses[i])
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = client.Close() }()
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = server.Close() }()
		if server.RemoteAddr().String() != client.LocalAddr().String() {
			t.Errorf("listener %d is not the one that was handed over", i)
		}
	}
}

func TestReceiveWhenTheOtherPartIsGone(t *testing.T) {
	ours, theirs, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ours.Close() }()
	if err := theirs.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Receive(ours); err == nil {
		t.Error("sockets came from nowhere")
	}
}
