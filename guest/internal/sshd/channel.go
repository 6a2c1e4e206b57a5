package sshd

import (
	"context"
	"sync/atomic"
	"syscall"

	"github.com/gliderlabs/ssh"
	gossh "golang.org/x/crypto/ssh"
)

// version makes clients of OpenSSH send endOfWrite, which they send to servers of this name only.
const version = "OpenSSH_compatible_Keelson"

// endOfWrite is the request with which a client says that it takes no more output of a session, see PROTOCOL of OpenSSH:
// its own output is closed, as in ssh HOST yes | head -1. The channel stays open.
const endOfWrite = "eow@openssh.com"

// serveSession serves a session whose context ends with its channel. A client may close that and keep the connection.
func serveSession(server *ssh.Server, conn *gossh.ServerConn, requested gossh.NewChannel, ctx ssh.Context) {
	own, end := context.WithCancel(ctx)
	defer end()
	ssh.DefaultSessionHandler(server, conn, newChannel{requested}, sessionContext{ctx, own})
}

// sessionContext is the context of a connection that ends with own.
type sessionContext struct {
	ssh.Context
	own context.Context
}

func (c sessionContext) Done() <-chan struct{} { return c.own.Done() }
func (c sessionContext) Err() error            { return c.own.Err() }

// newChannel is a requested channel that handles endOfWrite.
type newChannel struct{ gossh.NewChannel }

// Accept implements gossh.NewChannel.
func (n newChannel) Accept() (gossh.Channel, <-chan *gossh.Request, error) {
	accepted, requests, err := n.NewChannel.Accept()
	if err != nil {
		return nil, nil, err
	}
	c, others := &channel{Channel: accepted}, make(chan *gossh.Request)
	go func() {
		defer close(others)
		for request := range requests {
			if request.Type == endOfWrite {
				c.ended.Store(true)
				_ = request.Reply(true, nil) // the client may have gone
				continue
			}
			others <- request
		}
	}()
	return c, others, nil
}

// channel is a channel whose output the client may end.
type channel struct {
	gossh.Channel
	ended atomic.Bool
}

// Write implements io.Writer. The error is EPIPE if the client takes no more output.
func (c *channel) Write(output []byte) (int, error) {
	if c.ended.Load() {
		return 0, syscall.EPIPE
	}
	return c.Channel.Write(output)
}
