// Package qmp implements clients of the QEMU Machine Protocol and of the guest agent protocol: JSON
// objects, one per line, over a Unix socket. The two differ only in the handshake.
//
// Commands carry an ID and wait for the response with that ID until their context ends, so an
// unresponsive or slow peer blocks nobody. The end of the connection fails all waiting commands.
// Events go into a bounded queue; those that do not fit are dropped.
//
// The agent is a program of the guest, and a guest can make its QEMU send endless events. So
// messages have a maximum length, and a peer that sends too many unsolicited ones is disconnected
// with ErrFlood.
package qmp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// maxLine is the maximum length of a message of QEMU. The longest known one, the schema, has
	// less than 1 MiB.
	maxLine = 16 << 20
	// maxAgentLine is the maximum length of a message of a guest agent. The addresses of twenty
	// network interfaces take a quarter of it.
	maxAgentLine = 64 << 10
	// eventQueueSize is the capacity of the event queue. Events are rare: power changes, agents.
	eventQueueSize = 64
	// writeTimeout limits the time to write a command if its context has no earlier deadline.
	writeTimeout = 10 * time.Second
)

// agentMark precedes the agent's response to guest-sync-delimited, and the command: everything
// before it is discarded. It never occurs in JSON.
const agentMark = 0xff

var (
	// ErrClosed means that the connection is closed. It wraps the reason.
	ErrClosed = errors.New("connection is closed")
	// ErrFlood means that the peer sent too many unsolicited messages.
	ErrFlood = errors.New("the peer floods the connection")
)

// limits bound the messages of a peer.
type limits struct {
	// line is the maximum length of a message in bytes.
	line int
	// events is the capacity of the event queue.
	events int
	// unsolicited limits the rate of messages that are no response, burst their number at once.
	unsolicited rate.Limit
	burst       int
}

var (
	monitorLimits = limits{line: maxLine, events: eventQueueSize, unsolicited: 20, burst: 256}
	// An agent sends nothing unsolicited, except perhaps the rest of an old response at first.
	agentLimits = limits{line: maxAgentLine, unsolicited: 1, burst: 8}
)

// Error is the error response of a peer.
type Error struct {
	Class       string `json:"class"`
	Description string `json:"desc"`
}

// Error returns the peer's description.
func (e *Error) Error() string { return e.Description }

// Event is an event sent by the peer.
type Event struct {
	Name string          `json:"event"`
	Data json.RawMessage `json:"data"`
}

// message is a line from the peer.
type message struct {
	Event
	ID       json.RawMessage `json:"id"`
	Return   json.RawMessage `json:"return"`
	Error    *Error          `json:"error"`
	Greeting json.RawMessage `json:"QMP"`
}

// Client is a connection. Its methods may be called concurrently.
type Client struct {
	conn    net.Conn
	maxLine int
	unasked *rate.Limiter
	events  chan Event
	done    chan struct{}

	writing sync.Mutex
	// passing is held while a descriptor is passed.
	passing sync.Mutex

	mu       sync.Mutex
	next     int64
	pending  map[int64]chan message
	err      error
	greeting chan struct{}
}

// Dial connects to the monitor of a QEMU, and completes the handshake. The context limits the
// handshake, not the connection.
func Dial(ctx context.Context, path string) (*Client, error) {
	c, err := dial(ctx, path, monitorLimits)
	if err != nil {
		return nil, err
	}
	select {
	case <-c.greeting:
	case <-c.done:
		return nil, fmt.Errorf("greet monitor: %w", c.reason())
	case <-ctx.Done():
		c.Close()
		return nil, fmt.Errorf("greet monitor: %w", ctx.Err())
	}
	if err := c.Run(ctx, "qmp_capabilities", nil, nil); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// DialAgent connects to the guest agent behind a socket and synchronizes with it: the agent may
// still be sending a response to a previous client.
func DialAgent(ctx context.Context, path string) (*Client, error) {
	c, err := dial(ctx, path, agentLimits)
	if err != nil {
		return nil, err
	}
	if err := c.sync(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func dial(ctx context.Context, path string, peer limits) (*Client, error) {
	conn, err := DialUnix(ctx, path)
	if err != nil {
		return nil, err
	}
	return newClient(conn, peer), nil
}

func newClient(conn net.Conn, peer limits) *Client {
	c := &Client{
		conn: conn, maxLine: peer.line, unasked: rate.NewLimiter(peer.unsolicited, peer.burst),
		events: make(chan Event, peer.events), done: make(chan struct{}),
		pending: map[int64]chan message{}, greeting: make(chan struct{}),
		// Not from 1: an agent may still respond to commands of an earlier connection.
		next: rand.Int64N(1 << 50),
	}
	go c.read()
	return c
}

// Events returns the events of the peer. The channel is closed with the connection.
func (c *Client) Events() <-chan Event { return c.events }

// Done is closed with the connection.
func (c *Client) Done() <-chan struct{} { return c.done }

// Close closes the connection. Waiting commands fail.
func (c *Client) Close() { c.fail(errors.New("closed by us")) }

func (c *Client) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// fail closes the connection and records the first reason.
func (c *Client) fail(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = fmt.Errorf("%w: %w", ErrClosed, why)
	_ = c.conn.Close() // nothing is buffered
	close(c.done)
}

// Run executes a command and decodes its result. arguments and result may be nil. The error is an
// *Error if the peer rejected the command.
func (c *Client) Run(ctx context.Context, command string, arguments, result any) error {
	return c.run(ctx, command, arguments, nil, result)
}

// run is Run, with the descriptor of a file unless file is nil.
func (c *Client) run(ctx context.Context, command string, arguments any, file *os.File, result any) error {
	answer, err := c.execute(ctx, command, arguments, file)
	if err == nil && result != nil {
		err = json.Unmarshal(answer, result)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	return nil
}

func (c *Client) execute(ctx context.Context, command string, arguments any, file *os.File) (json.RawMessage, error) {
	answers := make(chan message, 1)
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return nil, c.err
	}
	c.next++
	id := c.next
	c.pending[id] = answers
	c.mu.Unlock()
	defer c.forget(id)
	if err := c.send(ctx, id, command, arguments, file); err != nil {
		return nil, err
	}
	select {
	case answer := <-answers:
		if answer.Error != nil {
			return nil, answer.Error
		}
		return answer.Return, nil
	case <-c.done:
		return nil, c.reason()
	case <-ctx.Done():
		return nil, fmt.Errorf("no answer: %w", ctx.Err())
	}
}

func (c *Client) forget(id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, id)
}

// send writes a command. A partial command would garble all that follow, so a failed write closes
// the connection.
func (c *Client) send(ctx context.Context, id int64, command string, arguments any, file *os.File) error {
	line, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
		ID        int64  `json:"id"`
	}{command, arguments, id})
	if err != nil {
		return err
	}
	deadline, found := ctx.Deadline()
	if limit := time.Now().Add(writeTimeout); !found || limit.Before(deadline) {
		deadline = limit
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if err = c.conn.SetWriteDeadline(deadline); err == nil {
		err = c.write(append(line, '\n'), file)
	}
	if err != nil {
		c.fail(err)
		return c.reason()
	}
	return nil
}

// read dispatches the peer's messages until the connection ends.
func (c *Client) read() {
	defer close(c.events)
	reader := bufio.NewReader(c.conn)
	for {
		line, err := readLine(reader, c.maxLine)
		if err != nil {
			c.fail(err)
			return
		}
		if i := bytes.LastIndexByte(line, agentMark); i >= 0 {
			line = line[i+1:]
		}
		var got message
		asked := false
		if err := json.Unmarshal(line, &got); err == nil {
			asked = c.deliver(got)
		} else if len(bytes.TrimSpace(line)) > 0 && c.isSynced() {
			c.fail(fmt.Errorf("%.80q is not a message: %w", line, err))
			return
		} // otherwise it is the rest of an old response
		if !asked && !c.unasked.Allow() {
			c.fail(ErrFlood)
			return
		}
	}
}

// isSynced reports whether everything read belongs to this connection: QMP begins with a greeting,
// the agent protocol with the response to a sync.
func (c *Client) isSynced() bool {
	select {
	case <-c.greeting:
		return true
	default:
		return false
	}
}

// deliver passes a message to its receiver, and reports whether it is a response.
func (c *Client) deliver(got message) (asked bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case got.Greeting != nil:
		c.markSynced()
	case got.Name != "":
		select {
		case c.events <- got.Event:
		default:
		}
	default:
		var id int64
		if err := json.Unmarshal(got.ID, &id); err != nil {
			return false
		}
		if waiting, found := c.pending[id]; found {
			waiting <- got // buffered, for the only response
			delete(c.pending, id)
			return true
		}
	}
	return false
}

// markSynced records that the peer is synchronized; c.mu is held.
func (c *Client) markSynced() {
	select {
	case <-c.greeting:
	default:
		close(c.greeting)
	}
}

// sync discards the rest of an earlier conversation on both sides.
func (c *Client) sync(ctx context.Context) error {
	c.writing.Lock()
	err := c.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err == nil {
		_, err = c.conn.Write([]byte{agentMark})
	}
	c.writing.Unlock()
	if err != nil {
		c.fail(err)
		return c.reason() // the reader may have failed first, and closed the connection
	}
	number := rand.Int64N(1 << 53) // within the range of every JSON parser
	var answer int64
	if err := c.Run(ctx, "guest-sync-delimited", map[string]int64{"id": number}, &answer); err != nil {
		return err
	}
	if answer != number {
		return fmt.Errorf("guest-sync-delimited: the agent responded with %d instead of %d", answer, number)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.markSynced()
	return nil
}
