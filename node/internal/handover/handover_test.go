package handover

import (
	"net"
	"testing"

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
	var sent []*net.TCPListener
	var addresses []string
	for range 2 {
		l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		sent = append(sent, l)
		addresses = append(addresses, l.Addr().String())
	}
	if err := Send(inside, sent[0], sent[1]); err != nil {
		t.Fatal(err)
	}
	api, proxy, err := Receive(ours)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = api.Close() }()
	defer func() { _ = proxy.Close() }()
	for i, l := range []net.Listener{api, proxy} {
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
	if _, _, err := Receive(ours); err == nil {
		t.Error("two listeners came from nowhere")
	}
}
