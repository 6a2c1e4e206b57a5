// Package qmp speaks the QEMU Machine Protocol, and the guest agent protocol, which is
// the same but for its greeting: JSON objects, one a line, over a Unix socket.
//
// Commands carry an id and wait for the answer with that id until their context ends, so
// that a silent or slow peer holds nobody. The end of the connection fails everything
// that waits. Events go into a queue that is bounded; what does not fit is counted.
//
// The agent is a program of the guest, and a guest can make its QEMU send events without
// end. So messages have a maximum length, and a peer that sends too many that nobody
// asked for is disconnected with ErrFlood.
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
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// maxLine is how long a message of QEMU may be. The longest that it is known to send,
	// the schema, has less than 1 MiB.
	maxLine = 16 << 20
	// maxAgentLine is how long a message of a guest agent may be. The addresses of twenty
	// network interfaces have a quarter of that.
	maxAgentLine = 64 << 10
	// eventQueueSize is how many events may wait. They are few: a power change, an agent.
	eventQueueSize = 64
	// writeTimeout is how long the peer may take to accept a command, if the context of
	// the command has no earlier deadline.
	writeTimeout = 10 * time.Second
)

// agentMark is sent by the guest agent before the answer to guest-sync-delimited, and to
// it before the command: what came before is to be thrown away. No JSON has it.
const agentMark = 0xff

var (
	// ErrClosed says that the connection is gone. It wraps why.
	ErrClosed = errors.New("connection is closed")
	// ErrFlood says that the peer sent too many messages that nobody asked for.
	ErrFlood = errors.New("the peer floods the connection")
)

// limits bound what a peer may send.
type limits struct {
	// line is the length of the longest message, in bytes.
	line int
	// events is how many events may wait in the queue.
	events int
	// unasked is how many messages may come that nobody asked for: so many a second, and
	// so many at once.
	unsolicited rate.Limit
	burst       int
}

var (
	monitorLimits = limits{line: maxLine, events: eventQueueSize, unsolicited: 20, burst: 256}
	// An agent says nothing by itself. At the start there may be the rest of an old answer.
	agentLimits = limits{line: maxAgentLine, unsolicited: 1, burst: 8}
)

// Error is what the peer answered instead of a result.
type Error struct {
	Class       string `json:"class"`
	Description string `json:"desc"`
}

// Error returns the words of the peer.
func (e *Error) Error() string { return e.Description }

// Event is something that the peer tells by itself.
type Event struct {
	Name string          `json:"event"`
	Data json.RawMessage `json:"data"`
	// Timestamp is the time of the host.
	Timestamp struct {
		Seconds      int64 `json:"seconds"`
		Microseconds int64 `json:"microseconds"`
	} `json:"timestamp"`
}

// message is any line of the peer.
type message struct {
	Event
	ID       json.RawMessage `json:"id"`
	Return   json.RawMessage `json:"return"`
	Error    *Error          `json:"error"`
	Greeting json.RawMessage `json:"QMP"`
}

// Client is one connection. Its methods may be called from several goroutines.
type Client struct {
	conn    net.Conn
	maxLine int
	unasked *rate.Limiter
	events  chan Event
	done    chan struct{}

	writing sync.Mutex

	mu       sync.Mutex
	next     int64
	pending  map[int64]chan message
	dropped  int
	err      error
	greeting chan struct{}
}

// Dial connects to the monitor of a QEMU: it waits for the greeting and negotiates. The
// context limits that, not the life of the connection.
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

// DialAgent connects to the guest agent behind a socket, and gets in step with it. The
// agent may be in the middle of an answer to somebody who is gone.
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
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
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
		// Not from 1: an agent may still answer what was asked over an earlier connection.
		next: rand.Int64N(1 << 50),
	}
	go c.read()
	return c
}

// Events returns the events of the peer. The channel is closed with the connection.
func (c *Client) Events() <-chan Event { return c.events }

// Done is closed when the connection is gone.
func (c *Client) Done() <-chan struct{} { return c.done }

// Dropped returns how many events did not fit into the queue.
func (c *Client) Dropped() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dropped
}

// Close ends the connection; what waits for an answer fails.
func (c *Client) Close() { c.fail(errors.New("closed by us")) }

func (c *Client) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// fail ends the connection for a reason, the first time.
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

// Run executes a command with arguments, which may be nil, and stores the answer in
// result, which may be nil, too. The error is an *Error if the peer refused.
func (c *Client) Run(ctx context.Context, command string, arguments, result any) error {
	answer, err := c.execute(ctx, command, arguments)
	if err == nil && result != nil {
		err = json.Unmarshal(answer, result)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	return nil
}

func (c *Client) execute(ctx context.Context, command string, arguments any) (json.RawMessage, error) {
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
	if err := c.send(ctx, id, command, arguments); err != nil {
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

// send writes a command. A part of one would garble all that follow, so a write that
// fails is the end of the connection.
func (c *Client) send(ctx context.Context, id int64, command string, arguments any) error {
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
		_, err = c.conn.Write(append(line, '\n'))
	}
	if err != nil {
		c.fail(err)
		return c.reason()
	}
	return nil
}

// read hands out what the peer sends, until the connection ends.
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
			c.fail(fmt.Errorf("%.80q is no message: %w", line, err))
			return
		} // else it is the rest of an answer to somebody else
		if !asked && !c.unasked.Allow() {
			c.fail(ErrFlood)
			return
		}
	}
}

// isSynced reports whether there can be no part of an old answer on the line: QMP begins
// with a greeting, the agent protocol with the answer to a sync.
func (c *Client) isSynced() bool {
	select {
	case <-c.greeting:
		return true
	default:
		return false
	}
}

// deliver gives one message to who waits for it, and reports whether it is an answer.
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
			c.dropped++
		}
	default:
		var id int64
		if err := json.Unmarshal(got.ID, &id); err != nil {
			return false
		}
		if waiting, found := c.pending[id]; found {
			waiting <- got // has room, and there is one answer
			delete(c.pending, id)
			return true
		}
	}
	return false
}

// markSynced notes that the peer is in step; c.mu is held.
func (c *Client) markSynced() {
	select {
	case <-c.greeting:
	default:
		close(c.greeting)
	}
}

// sync throws away what is left of an earlier conversation, on both sides.
func (c *Client) sync(ctx context.Context) error {
	c.writing.Lock()
	err := c.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err == nil {
		_, err = c.conn.Write([]byte{agentMark})
	}
	c.writing.Unlock()
	if err != nil {
		return err
	}
	number := rand.Int64N(1 << 53) // what every JSON parser takes
	var answer int64
	if err := c.Run(ctx, "guest-sync-delimited", map[string]int64{"id": number}, &answer); err != nil {
		return err
	}
	if answer != number {
		return fmt.Errorf("guest-sync-delimited: the agent answers %d to %d", answer, number)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.markSynced()
	return nil
}
