package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/node/internal/handover"
	"github.com/keelson-dev/keelson/node/internal/settings"
)

// innerTimeout is how long a connection to something in the node may take.
const innerTimeout = 30 * time.Second

// serveEgress has kube-apiserver reach kubelet, Pods and Services at a socket, by the HTTP method CONNECT. It returns when it listens.
func serveEgress(s settings.Settings, inside *net.UnixConn) error {
	if err := os.Remove(s.Rootless.Egress); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", s.Rootless.Egress)
	if err != nil {
		return fmt.Errorf("listen for kube-apiserver: %w", err)
	}
	dialer := &innerDialer{settings: s, inside: inside}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(w, "this is a proxy", http.StatusBadRequest)
			return
		}
		tunnel(w, r, dialer.dial)
	})
	server := &http.Server{Handler: handler, ReadHeaderTimeout: innerTimeout}
	go func() { _ = server.Serve(l) }()
	return nil
}

// innerDialer connects to addresses in the node by sockets of its network, and to others as any program on the host.
type innerDialer struct {
	settings settings.Settings

	mu     sync.Mutex
	inside *net.UnixConn
}

func (d *innerDialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil || !d.settings.Reaches(to.Addr()) { // such as an aggregated API on the host
		return (&net.Dialer{Timeout: innerTimeout}).DialContext(ctx, network, address)
	}
	socket, err := d.socket()
	if err != nil {
		return nil, err
	}
	return connectSocket(socket, to, time.Now().Add(innerTimeout))
}

func (d *innerDialer) socket() (*os.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return handover.Ask(d.inside)
}

// connectSocket connects a TCP socket that does not block, and takes it over.
func connectSocket(socket *os.File, to netip.AddrPort, deadline time.Time) (net.Conn, error) {
	c, err := net.FileConn(socket)
	_ = socket.Close() // the connection has a copy
	if err != nil {
		return nil, err
	}
	if err := connectConn(c, to, deadline); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("connect to %s: %w", to, err)
	}
	return c, nil
}

func connectConn(c net.Conn, to netip.AddrPort, deadline time.Time) error {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return fmt.Errorf("a %T is no TCP socket", c)
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	if err := tcp.SetWriteDeadline(deadline); err != nil {
		return err
	}
	begun, failed := false, error(nil)
	err = raw.Write(func(fd uintptr) (done bool) {
		if !begun {
			begun = true
			failed = unix.Connect(int(fd), &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
			return !errors.Is(failed, unix.EINPROGRESS)
		}
		code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if failed = err; err == nil && code != 0 {
			failed = unix.Errno(code)
		}
		if failed != nil {
			return true
		}
		_, err = unix.Getpeername(int(fd))
		return err == nil // else it was woken up too early
	})
	return errors.Join(err, failed, tcp.SetWriteDeadline(time.Time{}))
}
