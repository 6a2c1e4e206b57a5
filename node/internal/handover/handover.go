// Package handover is how the two parts of a node meet: a socket over which the part on the machine says that the link
// is there, and the part inside then hands over what listens in its network.
package handover

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// InsideFD is the descriptor that the part inside finds its end of the socket at.
const InsideFD = 3

// NamesSockets is how many sockets there are for questions by UDP: more than the 110 Pods that kubelet takes, so that Pods
// whose addresses follow each other have one each. The kernel hands over 253 files at a time, see SCM_RIGHTS in unix(7).
const NamesSockets = 128

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

// Go says that the other end may go on.
func Go(c *net.UnixConn) error {
	_, err := c.Write([]byte{1})
	return err
}

// Await waits for Go.
func Await(c *net.UnixConn) error {
	_, err := c.Read(make([]byte, 1))
	return err
}

// Sockets are what listens in the network of the node, and is served by the part on the machine.
type Sockets struct {
	// API is for connections to the API.
	API net.Listener
	// Proxy is for the container runtime, to which the machine is an HTTP proxy.
	Proxy net.Listener
	// Out is for the connections of Pods that go beyond the node and the machine.
	Out net.Listener
	// Names, NamesSockets of them, and NamesTCP are for the questions of Pods about names.
	Names    []net.PacketConn
	NamesTCP net.Listener
	// Tunnel, if there is one, has the packets of Pods that go beyond the node and the machine and are no connections.
	Tunnel *os.File
}

// Close closes those that there are.
func (s *Sockets) Close() error {
	var errs []error
	for _, c := range []io.Closer{s.API, s.Proxy, s.Out, s.NamesTCP} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	for _, c := range s.Names {
		errs = append(errs, c.Close())
	}
	if s.Tunnel != nil {
		errs = append(errs, s.Tunnel.Close())
	}
	return errors.Join(errs...)
}

// filer is a socket that has a file.
type filer interface{ File() (*os.File, error) }

// Send hands over sockets, all of them, and closes them.
func Send(c *net.UnixConn, s *Sockets) error {
	defer func() { _ = s.Close() }()
	var fds []int
	all := []any{s.API, s.Proxy, s.Out, s.NamesTCP}
	for _, socket := range s.Names {
		all = append(all, socket)
	}
	for _, socket := range all {
		withFile, ok := socket.(filer)
		if !ok {
			return fmt.Errorf("a %T has no file", socket)
		}
		file, err := withFile.File()
		if err != nil {
			return err
		}
		defer file.Close()
		fds = append(fds, int(file.Fd()))
	}
	if s.Tunnel != nil {
		raw, err := s.Tunnel.SyscallConn() // unlike Fd it leaves the file as it is, which is not to block
		if err == nil {
			err = raw.Control(func(fd uintptr) { fds = append(fds, int(fd)) })
		}
		if err != nil {
			return err
		}
	}
	_, _, err := c.WriteMsgUnix([]byte{1}, unix.UnixRights(fds...), nil)
	return err
}

// Receive takes over what Send hands over.
func Receive(c *net.UnixConn) (*Sockets, error) {
	s := &Sockets{}
	listeners := []*net.Listener{&s.API, &s.Proxy, &s.Out, &s.NamesTCP}
	count := len(listeners) + NamesSockets // and the tunnel, if there is one
	files, err := receiveFiles(c, count+1)
	if len(files) > count {
		s.Tunnel = files[count]
	}
	for _, file := range files[:min(count, len(files))] {
		defer file.Close() // the sockets have copies
	}
	if err == nil && len(files) < count {
		err = fmt.Errorf("%d sockets were handed over, not %d", len(files), count)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	for i, l := range listeners {
		if *l, err = net.FileListener(files[i]); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	for _, file := range files[len(listeners):count] {
		socket, err := net.FilePacketConn(file)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.Names = append(s.Names, socket)
	}
	return s, nil
}

// receiveFiles receives so many files at most; the kernel closes those that are more.
func receiveFiles(c *net.UnixConn, most int) (files []*os.File, err error) {
	control := make([]byte, unix.CmsgSpace(most*4))
	_, n, _, _, err := c.ReadMsgUnix(make([]byte, 1), control)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil {
		return nil, err
	}
	if len(messages) != 1 {
		return nil, errors.New("the part inside has ended")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, err
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
		files = append(files, os.NewFile(uintptr(fd), "socket"))
	}
	return files, nil
}

// Offer answers each Ask, until the connection ends, with a new socket of the network of this process.
func Offer(c *net.UnixConn) {
	for Await(c) == nil {
		var rights []byte
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err == nil {
			rights = unix.UnixRights(fd)
		}
		_, _, err = c.WriteMsgUnix([]byte{1}, rights, nil)
		if rights != nil {
			_ = unix.Close(fd)
		}
		if err != nil {
			return
		}
	}
}

// Ask returns a TCP socket of the network at the other end, which is not connected yet. Only one may ask at a time.
func Ask(c *net.UnixConn) (*os.File, error) {
	if err := Go(c); err != nil {
		return nil, err
	}
	files, err := receiveFiles(c, 1)
	if err != nil {
		return nil, err
	}
	return files[0], nil
}
