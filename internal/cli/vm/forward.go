package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/internal/access/client"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

func newPortForward(flags *target.Flags) *cobra.Command {
	address, stdio := "127.0.0.1", false
	cmd := &cobra.Command{
		Use:   "port-forward NAME [LOCAL:]PORT...",
		Short: "Forward local ports to a machine",
		Long: `Forward TCP ports of this host to ports of a machine, through the Kubernetes API, until Ctrl-C. LOCAL is the
port on this host, 0 for any free one; without it, it is the same as PORT.`,
		Example: `  keelson vm port-forward web 8080:80`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 || stdio && len(args) != 2 {
				return usage.Errorf("%s takes a NAME, the VirtualMachine, and a [LOCAL:]PORT; got %q", cmd.CommandPath(), args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var ports []portPair
			for _, arg := range args[1:] {
				pair, err := parsePair(arg)
				if err != nil {
					return err
				}
				ports = append(ports, pair)
			}
			m, err := open(cmd.Context(), flags)
			if err != nil {
				return err
			}
			if stdio {
				return m.connect(cmd, args[0], ports[0].remote)
			}
			vm, err := m.Find(cmd.Context(), args[0])
			if err == nil {
				err = whyOff(vm)
			}
			if err != nil {
				return err
			}
			return m.forward(cmd, args[0], address, ports)
		},
	}
	cmd.Flags().StringVar(&address, "address", address, "`address` of this host to listen on")
	cmd.Flags().BoolVar(&stdio, "stdio", false, "connect standard input and output, as a ProxyCommand of ssh; waits for a machine that boots")
	return cmd
}

// portPair is a port of this host and one of a machine.
type portPair struct{ local, remote uint16 }

func parsePair(text string) (portPair, error) {
	local, remote, both := strings.Cut(text, ":")
	if !both {
		remote = local
	}
	from, errLocal := strconv.ParseUint(local, 10, 16)
	to, errRemote := strconv.ParseUint(remote, 10, 16)
	if err := errors.Join(errLocal, errRemote); err != nil || to == 0 {
		return portPair{}, usage.Errorf("%q is not [LOCAL:]PORT, such as 8080:80", text)
	}
	return portPair{uint16(from), uint16(to)}, nil
}

// connect connects in and out to a port of a machine.
func (m *machines) connect(cmd *cobra.Command, name string, port uint16) error {
	conn, err := m.dial(cmd.Context(), name, port, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	return pipe(conn, cmd.InOrStdin(), cmd.OutOrStdout())
}

// halfCloser is a connection that can end its side only.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// pipe copies in both directions until the machine ends the connection. It passes the end of the input on.
func pipe(conn halfCloser, in io.Reader, out io.Writer) error {
	sent, received := make(chan error, 1), make(chan error, 1)
	go func() { _, err := io.Copy(conn, in); sent <- err }()
	go func() { _, err := io.Copy(out, conn); received <- err }()
	var err error
	select {
	case err = <-received:
	case err = <-sent:
		if err == nil {
			err = conn.CloseWrite()
		}
		if err == nil {
			err = <-received
		}
	}
	if closed := conn.Close(); !errors.Is(closed, net.ErrClosed) {
		err = errors.Join(err, closed)
	}
	return err
}

// forward listens on the local ports until the context ends.
func (m *machines) forward(cmd *cobra.Command, name, address string, ports []portPair) error {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	for _, pair := range ports {
		var listening net.ListenConfig
		listener, err := listening.Listen(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(int(pair.local))))
		if err != nil {
			cancel()
			return fmt.Errorf("listen for port %d of %s: %w; choose another local port, such as 0:%[1]d", pair.remote, name, err)
		}
		context.AfterFunc(ctx, func() { _ = listener.Close() }) // it ends Accept
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "Forwarding %s -> %s:%d\n", listener.Addr(), name, pair.remote); err != nil {
			cancel()
			return err
		}
		running.Go(func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return // the context has ended
				}
				running.Go(func() { m.relay(ctx, cmd.ErrOrStderr(), conn, name, pair.remote) })
			}
		})
	}
	<-ctx.Done()
	return nil
}

// relay connects an accepted connection to a port of a machine.
func (m *machines) relay(ctx context.Context, errors io.Writer, local net.Conn, name string, port uint16) {
	defer func() { _ = local.Close() }() // nothing is lost any more
	remote, err := client.DialPort(ctx, m.API.Config, m.API.Namespace, name, port)
	if err != nil {
		_, _ = fmt.Fprintf(errors, "Port %d of %s: %v\n", port, name, err) // nothing else could report a failure
		return
	}
	context.AfterFunc(ctx, func() { _ = remote.Close() })
	_ = pipe(remote, local, local) // an end of the connection, for either side to see
}
