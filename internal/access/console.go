package access

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/coder/websocket"

	"github.com/keelson-dev/keelson/internal/access/client"
)

// serveConsole serves the serial console of a machine.
func (s *Server) serveConsole(w http.ResponseWriter, r *http.Request, t *target) error {
	write, err := booleanOf(r, client.ParameterWrite, true)
	if err != nil {
		return err
	}
	if err := isUpgrade(r); err != nil {
		return err
	}
	x, err := s.beginAwake(r, t, client.Console)
	if err != nil {
		return err
	}
	defer x.end()
	v, err := s.join(t, write, func() { x.cancel(errTooSlow) })
	if err != nil {
		return err
	}
	defer s.leave(v)
	socket, err := upgrade(w, r)
	if err != nil {
		return nil //nolint:nilerr // it has answered
	}
	closed := x.closeWith(socket)
	var showing sync.WaitGroup
	showing.Go(func() { x.cancel(x.show(socket, v)) })
	x.cancel(x.read(socket, v))
	showing.Wait()
	closed()
	return nil
}

// errTooSlow ends a session that does not read its output.
var errTooSlow = &ending{client.CloseSlow, "The output was not read fast enough. Connect again to go on."}

// show sends what a viewer gets, and returns why that has ended.
func (x *session) show(socket *websocket.Conn, v *viewer) error {
	block := make([]byte, blockSize)
	for {
		notices, n, err := v.take(block)
		for _, notice := range notices {
			raw, err := json.Marshal(notice)
			if err != nil {
				return err
			}
			if err := x.write(socket, websocket.MessageText, raw); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, errSlow):
			return errTooSlow
		case n > 0:
			x.touch()
			if err := x.write(socket, websocket.MessageBinary, block[:n]); err != nil {
				return err
			}
			continue
		case len(notices) > 0:
			continue
		}
		select {
		case <-v.woken:
		case <-x.ctx.Done():
			return context.Cause(x.ctx)
		}
	}
}

// write sends a message. A client that does not read it in time is cut off.
func (x *session) write(socket *websocket.Conn, kind websocket.MessageType, message []byte) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.ctx), x.server.options.Limits.Stall)
	defer cancel()
	if err := socket.Write(ctx, kind, message); err != nil {
		if ctx.Err() != nil {
			return errTooSlow
		}
		return errLeft
	}
	return nil
}

// read gives the machine what the client sends, and returns why that has ended.
func (x *session) read(socket *websocket.Conn, v *viewer) error {
	block := make([]byte, inputBlock)
	for {
		kind, message, err := socket.Reader(context.WithoutCancel(x.ctx))
		if err != nil {
			return errLeft
		}
		if kind != websocket.MessageBinary {
			return &ending{websocket.StatusUnsupportedData, "Only binary messages are expected."}
		}
		for {
			n, err := message.Read(block)
			if n > 0 {
				x.touch()
				v.send(x.ctx, block[:n])
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
