package access

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/keelson-dev/keelson/internal/access/client"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// dialTimeout limits an attempt to connect to a guest.
const dialTimeout = 10 * time.Second

// servePort serves a TCP connection to a port of a guest.
func (s *Server) servePort(w http.ResponseWriter, r *http.Request, t *target) error {
	text := r.URL.Query().Get(client.ParameterPort)
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return refuse(http.StatusBadRequest, "the parameter %s must be a port from 1 to 65535, not %q", client.ParameterPort, text)
	}
	if err := isUpgrade(r); err != nil {
		return err
	}
	dialer, ok := t.driver.(backend.Dialer)
	if !ok {
		return refuse(http.StatusNotImplemented, "the driver %s cannot connect to machines", t.driver.Name())
	}
	x, err := s.beginAwake(r, t, client.PortForward)
	if err != nil {
		return err
	}
	defer x.end()
	conn, err := dial(r.Context(), dialer, t, uint16(port))
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // it has ended
	var protocols []string
	if _, canEnd := conn.(halfCloser); canEnd {
		protocols = []string{client.HalfClose}
	}
	socket, err := upgrade(w, r, protocols...)
	if err != nil {
		return nil //nolint:nilerr // it has answered
	}
	x.join(socket, conn, "The guest has closed the connection.")
	return nil
}

// halfCloser is a connection that can end its side only.
type halfCloser interface{ CloseWrite() error }

// dial connects to a port of a guest.
func dial(ctx context.Context, dialer backend.Dialer, t *target, port uint16) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := dialer.Dial(ctx, t.Identity, port)
	if err != nil && !errors.Is(err, backend.ErrInvalid) {
		return nil, refuse(http.StatusServiceUnavailable, "port %d of VirtualMachine %s/%s does not answer: %v", port, t.Namespace, t.Name, err)
	}
	return conn, err
}

// join copies between a client and a guest until one of them, or the session, ends. ended is the reason when the guest does.
func (x *session) join(socket *websocket.Conn, conn io.ReadWriteCloser, ended string) {
	closed := x.closeWith(socket)
	stop := context.AfterFunc(x.ctx, func() { _ = conn.Close() })
	defer stop()
	var copying sync.WaitGroup
	copying.Go(func() { x.cancel(x.copyOut(socket, conn, ended)) })
	x.cancel(x.copyIn(socket, conn))
	copying.Wait()
	closed()
}

// copyOut sends what the guest sends, and returns why that has ended.
func (x *session) copyOut(socket *websocket.Conn, conn io.Reader, ended string) error {
	block := make([]byte, blockSize)
	for {
		n, err := conn.Read(block)
		if n > 0 {
			x.touch()
			if socket.Write(context.WithoutCancel(x.ctx), websocket.MessageBinary, block[:n]) != nil {
				return errLeft
			}
		}
		if errors.Is(err, io.EOF) {
			return &ending{websocket.StatusNormalClosure, ended}
		}
		if err != nil {
			return &ending{websocket.StatusInternalError, fmt.Sprintf("The connection to the guest has failed: %v", err)}
		}
	}
}

// copyIn sends what the client sends to the guest, and returns why that has ended.
func (x *session) copyIn(socket *websocket.Conn, conn io.Writer) error {
	block := make([]byte, blockSize)
	for {
		kind, message, err := socket.Reader(context.WithoutCancel(x.ctx))
		if err != nil {
			return errLeft
		}
		if guest, canEnd := conn.(halfCloser); canEnd && kind == websocket.MessageText && socket.Subprotocol() == client.HalfClose {
			_ = guest.CloseWrite() // the guest may have closed the connection, as below
			continue
		}
		if kind != websocket.MessageBinary {
			return &ending{websocket.StatusUnsupportedData, "Only binary messages are expected."}
		}
		for {
			n, err := message.Read(block)
			if n > 0 {
				x.touch()
				// The guest may have closed the connection. What it has sent before comes first, and copyOut reports the end.
				_, _ = conn.Write(block[:n])
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return errLeft
			}
		}
	}
}
