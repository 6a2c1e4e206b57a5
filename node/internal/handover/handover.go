// Package handover is how the two parts of a node meet: a socket over which the part on the machine says that the link
// is there, and the part inside then hands over what listens in its network.
package handover

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// InsideFD is the descriptor that the part inside finds its end of the socket at.
const InsideFD = 3

// Pair returns both ends.
func Pair() (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "handover")
	if ours, err = Open(fds[0]); err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return ours, theirs, nil
}

// Open makes a connection of a descriptor, and closes that.
func Open(fd int) (*net.UnixConn, error) {
	file := os.NewFile(uintptr(fd), "handover")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("descriptor %d is not a unix socket", fd), conn.Close())
	}
	return unixConn, nil
}

// Go says that the link is there.
func Go(c *net.UnixConn) error {
	_, err := c.Write([]byte{1})
	return err
}

// Await waits for Go.
func Await(c *net.UnixConn) error {
	_, err := c.Read(make([]byte, 1))
	return err
}

// Send hands over the listeners for the API and for the proxy, and closes them.
func Send(c *net.UnixConn, api, proxy *net.TCPListener) error {
	defer func() { _ = api.Close() }()
	defer func() { _ = proxy.Close() }()
	var fds []int
	for _, l := range []*net.TCPListener{api, proxy} {
		file, err := l.File()
		if err != nil {
			return err
		}
		defer file.Close()
		fds = append(fds, int(file.Fd()))
	}
	_, _, err := c.WriteMsgUnix([]byte{1}, unix.UnixRights(fds...), nil)
	return err
}

// Receive takes over what Send hands over.
func Receive(c *net.UnixConn) (api, proxy net.Listener, err error) {
	control := make([]byte, unix.CmsgSpace(2*4))
	_, n, _, _, err := c.ReadMsgUnix(make([]byte, 1), control)
	if err != nil {
		return nil, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil {
		return nil, nil, err
	}
	if len(messages) != 1 {
		return nil, nil, errors.New("the part inside has ended")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, nil, err
	}
	var listeners []net.Listener
	for _, fd := range fds {
		unix.CloseOnExec(fd)
		file := os.NewFile(uintptr(fd), "listener")
		l, err := net.FileListener(file)
		_ = file.Close() // the listener has a copy
		if err != nil {
			return nil, nil, err
		}
		listeners = append(listeners, l)
	}
	if len(listeners) != 2 {
		return nil, nil, fmt.Errorf("%d listeners were handed over, not 2", len(listeners))
	}
	return listeners[0], listeners[1], nil
}
