package fair

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

func TestListenUDP(t *testing.T) {
	const sockets = 4
	all, err := ListenUDP("127.0.0.1:0", sockets)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		defer func() { _ = c.Close() }()
	}
	for _, test := range []struct {
		reason string
		sender byte // 127.0.0.N
		want   int
	}{
		{"a sender", 5, 1},
		{"the same one from another port", 5, 1},
		{"its neighbour", 6, 2},
		{"one that is as far away as there are sockets", 9, 1},
	} {
		t.Run(test.reason, func(t *testing.T) {
			c, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, test.sender)}, all[0].LocalAddr().(*net.UDPAddr))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			if _, err := c.Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
			for i, socket := range all {
				deadline := time.Now().Add(5 * time.Second)
				if i != test.want {
					deadline = time.Now().Add(20 * time.Millisecond)
				}
				if err := socket.SetReadDeadline(deadline); err != nil {
					t.Fatal(err)
				}
				_, _, err := socket.ReadFrom(make([]byte, 10))
				if i == test.want && err != nil || i != test.want && !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("socket %d: %v", i, err)
				}
			}
		})
	}
}
