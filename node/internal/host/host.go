// Package host is the part of a node that stays on the machine. It starts the other part in namespaces of its own,
// links the two networks, and hands connections over that only the machine can make.
//
// The node is one process tree: when its first process ends, the kernel ends all others, and with the namespaces go
// every mount, link and firewall rule that the node has made. When this part ends, however it does, so does the node.
package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/node/internal/handover"
	"github.com/keelson-dev/keelson/node/internal/settings"
)

// Run runs a node until it has ended, with a nil error if it was asked to by SIGTERM or SIGINT, at whatever moment.
func Run(path string) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	return run(ctx, path)
}

// run runs a node until it has ended, with a nil error if it was the end of the context that ended it.
func run(ctx context.Context, path string) (err error) {
	s, err := settings.Read(path)
	if err != nil {
		return err
	}
	var scope string
	if s.Rootless != nil {
		if scope, err = enterScope(s, path); err != nil {
			return err
		}
	}
	// The kernel ends the node when the thread that has started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	inside, ours, err := launch(s, nodeNamespaces, "inside", path)
	if err != nil {
		return fmt.Errorf("start the node in namespaces of its own: %w", err)
	}
	defer func() { _ = ours.Close() }()
	if s.Rootless != nil {
		if err := leaveScope(scope, os.Getpid(), inside.Process.Pid); err != nil {
			return errors.Join(err, inside.Process.Kill())
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- inside.Wait() }()
	return attend(ctx, inside.Process, ended, politeTimeout, func() error { return serve(s, inside.Process.Pid, ours) })
}

// nodeNamespaces are the node's own, beside the user namespace of a node without root.
const nodeNamespaces = unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

// launch starts this program once more in new namespaces. The connection leads to it. Without root it is root in a user namespace.
func launch(s settings.Settings, namespaces uintptr, args ...string) (*exec.Cmd, *net.UnixConn, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	ours, theirs, err := handover.Pair()
	if err != nil {
		return nil, nil, err
	}
	defer theirs.Close()
	if s.Rootless != nil {
		namespaces |= unix.CLONE_NEWUSER | unix.CLONE_NEWCGROUP
		args = append([]string{"as-root"}, args...)
	}
	cmd := exec.Command(self, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces, Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, nil, errors.Join(err, ours.Close())
	}
	if s.Rootless != nil {
		if err := becomeRoot(*s.Rootless, cmd.Process.Pid, ours); err != nil {
			return nil, nil, errors.Join(err, cmd.Process.Kill(), ours.Close())
		}
	}
	return cmd, ours, nil
}

// serve links the networks and does for the node what only the machine can.
func serve(s settings.Settings, pid int, inside *net.UnixConn) error {
	if s.Rootless == nil {
		if err := connect(s, pid); err != nil {
			return err
		}
	}
	if err := handover.Go(inside); err != nil {
		return fmt.Errorf("tell the node that it is linked: %w", err)
	}
	sockets, err := handover.Receive(inside)
	if err != nil {
		return fmt.Errorf("take over what listens inside the node: %w", err)
	}
	if s.Peers != "" {
		if err := linkPeers(s, pid); err != nil {
			return fmt.Errorf("link to the other nodes: %w", err)
		}
	}
	names, err := newNames(s)
	if err != nil {
		return fmt.Errorf("names of the cluster: %w", err)
	}
	descriptors, err := maxDescriptors()
	if err != nil {
		return err
	}
	pods := s.AllPods()
	// All of it until this process ends.
	if s.Rootless != nil {
		if err := serveEgress(s, inside); err != nil {
			return err
		}
	}
	go names.cluster.run(context.Background())
	if err := provisionVolumes(context.Background(), s); err != nil {
		return fmt.Errorf("volumes: %w", err)
	}
	if err := enforcePolicies(context.Background(), s, pid); err != nil {
		return fmt.Errorf("network policies: %w", err)
	}
	go serveEach(sockets.API, newToNode(descriptors).guard(pods, forwardAPI(s.APIPort)))
	go func() { _ = newProxy().Serve(sockets.Proxy) }()
	go serveEach(sockets.Out, newOut(descriptors).guard(pods, func(c net.Conn) { leadOut(c, originalTarget, s) }))
	if sockets.Tunnel != nil {
		go newDatagrams(sockets.Tunnel, s, descriptors).serve()
	}
	for _, socket := range sockets.Names {
		go names.serveUDP(socket)
	}
	go serveEach(sockets.NamesTCP, newToNode(descriptors).guard(pods, names.serveTCP))
	return nil
}
