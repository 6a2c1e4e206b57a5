package access

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/keelson-dev/keelson/internal/access/client"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

const (
	// reconnectInterval is how often a broker tries to connect to the console of a machine that is off.
	reconnectInterval = 500 * time.Millisecond
	// inputQueue is the number of blocks of input that wait for a guest, and inputBlock their size.
	inputQueue = 16
	inputBlock = 4 << 10
	// replayLines are enough lines of the log for the replay.
	replayLines = 2000
)

// broker holds the connection to the console of a machine while it has viewers, because a server has one connection at a
// time. No viewer blocks another one or the guest for longer than Limits.MaxLag.
type broker struct {
	consoler backend.Consoler
	target   *target
	limits   Limits

	// ctx ends when the last viewer has left.
	ctx    context.Context
	cancel context.CancelFunc
	// start connects for the first time, and then keeps the connection.
	start func() error
	input chan []byte
	// moved is sent when a viewer has read something.
	moved   chan struct{}
	running sync.WaitGroup

	mu      sync.Mutex
	output  *ring
	viewers map[*viewer]struct{}
	// writers are the viewers that asked to write; the last one does.
	writers []*viewer
}

// viewer is a session at a broker.
type viewer struct {
	broker *broker
	// woken is sent when there is something to take.
	woken chan struct{}
	// lost is called when the viewer has missed output.
	lost func()
	// jammed means that the machine does not take its input. Only send uses it.
	jammed bool

	// Of the broker's lock.
	next    uint64
	notices []client.Notice
	isLost  bool
}

func newBroker(ctx context.Context, consoler backend.Consoler, t *target, limits Limits) *broker {
	b := &broker{
		consoler: consoler, target: t, limits: limits, input: make(chan []byte, inputQueue), moved: make(chan struct{}, 1),
		output: newRing(), viewers: map[*viewer]struct{}{},
	}
	b.ctx, b.cancel = context.WithCancel(ctx)
	b.start = sync.OnceValue(b.connectFirst)
	return b
}

// join adds a session to the console of a machine. lost is called if it does not read fast enough; the caller calls
// leave.
func (s *Server) join(t *target, write bool, lost func()) (*viewer, error) {
	consoler, ok := t.driver.(backend.Consoler)
	if !ok {
		return nil, errNoConsole(t)
	}
	v := &viewer{woken: make(chan struct{}, 1), lost: lost}
	s.mu.Lock()
	b := s.brokers[t.UID]
	if b == nil {
		b = newBroker(s.ctx, consoler, t, s.options.Limits)
		s.brokers[t.UID] = b
	}
	v.broker = b
	b.mu.Lock()
	v.next = b.output.replay()
	b.viewers[v] = struct{}{}
	b.mu.Unlock()
	s.mu.Unlock()
	if err := b.start(); err != nil {
		s.leave(v)
		return nil, err
	}
	b.admit(v, write)
	return v, nil
}

// leave removes a session from a console. The last one closes the connection.
func (s *Server) leave(v *viewer) {
	b := v.broker
	s.mu.Lock()
	b.mu.Lock()
	delete(b.viewers, v)
	isLast := len(b.viewers) == 0
	b.mu.Unlock()
	if isLast {
		delete(s.brokers, b.target.UID)
	}
	s.mu.Unlock()
	b.removeWriter(v)
	if isLast {
		b.cancel()
		b.running.Wait()
	}
}

// connectFirst connects for the first viewer, and fills the ring with earlier output.
func (b *broker) connectFirst() error {
	conn, err := b.consoler.Console(b.ctx, b.target.Identity)
	if err != nil {
		return err
	}
	// Output between the two calls is shown twice rather than never.
	log, err := b.consoler.ConsoleLog(b.ctx, b.target.Identity, backend.LogOptions{Tail: replayLines})
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	b.mu.Lock()
	_, err = io.Copy(ringWriter{b.output}, log)
	b.mu.Unlock()
	if err = errors.Join(err, log.Close()); err != nil {
		return errors.Join(err, conn.Close())
	}
	b.running.Go(func() { b.run(conn) })
	return nil
}

type ringWriter struct{ *ring }

func (w ringWriter) Write(data []byte) (int, error) {
	w.write(data)
	return len(data), nil
}

// run keeps a connection to the console.
func (b *broker) run(conn io.ReadWriteCloser) {
	for b.ctx.Err() == nil {
		b.relay(conn)
		if b.ctx.Err() != nil {
			return
		}
		b.tell("The machine is off, or restarts. This session continues when it runs again.")
		if conn = b.reconnect(); conn == nil {
			return
		}
		b.tell("The machine is on.")
	}
}

// relay copies both ways until the connection ends.
func (b *broker) relay(conn io.ReadWriteCloser) {
	ctx, cancel := context.WithCancel(b.ctx)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	var writing sync.WaitGroup
	writing.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case data := <-b.input:
				if _, err := conn.Write(data); err != nil {
					return // the reader fails, too
				}
			}
		}
	})
	block := make([]byte, blockSize)
	for {
		n, err := conn.Read(block)
		if n > 0 {
			b.publish(block[:n])
		}
		if err != nil {
			break
		}
	}
	cancel()
	_ = conn.Close() // it has ended
	writing.Wait()
}

// reconnect connects again, as soon as the machine is on; nil if the viewers have left. Input is lost meanwhile.
func (b *broker) reconnect() io.ReadWriteCloser {
	ticker := time.NewTicker(reconnectInterval)
	defer ticker.Stop()
	for {
		select {
		case <-b.ctx.Done():
			return nil
		case <-b.input:
			continue
		case <-ticker.C:
		}
		if conn, err := b.consoler.Console(b.ctx, b.target.Identity); err == nil {
			return conn
		}
	}
}

// publish gives output to all viewers. It waits a little for those that have no room for it, so that they get a burst of
// output completely; those that have missed something then are lost, and nobody waits for them again.
func (b *broker) publish(data []byte) {
	var timeout <-chan time.Time
	for !b.hasRoom(len(data)) {
		if timeout == nil {
			timer := time.NewTimer(b.limits.MaxLag)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-b.moved:
			continue
		case <-b.ctx.Done():
			return
		case <-timeout:
		}
		break
	}
	var lost []*viewer
	b.mu.Lock()
	b.output.write(data)
	for v := range b.viewers {
		if v.next < b.output.start() && !v.isLost {
			v.isLost = true
			lost = append(lost, v)
		}
		v.wake()
	}
	b.mu.Unlock()
	for _, v := range lost {
		v.lost()
	}
}

// hasRoom reports whether no viewer misses anything if that much is written.
func (b *broker) hasRoom(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for v := range b.viewers {
		if !v.isLost && b.output.end-v.next+uint64(n) > ringSize {
			return false
		}
	}
	return true
}

// tell sends a notice to all viewers.
func (b *broker) tell(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for v := range b.viewers {
		b.notify(v, text)
	}
}

// notify sends a notice to a viewer, with b.mu held.
func (b *broker) notify(v *viewer, text string) {
	v.notices = append(v.notices, client.Notice{Notice: text, Writer: b.isWriter(v)})
	v.wake()
}

// isWriter reports whether the machine gets the input of a viewer, with b.mu held.
func (b *broker) isWriter(v *viewer) bool {
	return len(b.writers) > 0 && b.writers[len(b.writers)-1] == v
}

// admit begins a session: with a notice, and the replay.
func (b *broker) admit(v *viewer, write bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v.next = b.output.replay()
	if write {
		before := b.writers
		b.writers = append(b.writers, v)
		if len(before) > 0 {
			b.notify(before[len(before)-1], "Another session has taken over the console. This one only shows it.")
		}
	}
	b.notify(v, "")
}

// removeWriter ends the turn of a viewer; the writer before it has the next one.
func (b *broker) removeWriter(v *viewer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	wasWriter := b.isWriter(v)
	for i, w := range b.writers {
		if w == v {
			b.writers = append(b.writers[:i:i], b.writers[i+1:]...)
			break
		}
	}
	if wasWriter && len(b.writers) > 0 {
		b.notify(b.writers[len(b.writers)-1], "The other session has ended. This one can write again.")
	}
}

// wake makes a viewer take.
func (v *viewer) wake() {
	select {
	case v.woken <- struct{}{}:
	default:
	}
}

// take returns the next notices and output. Without any, it returns nothing.
func (v *viewer) take(into []byte) ([]client.Notice, int, error) {
	b := v.broker
	b.mu.Lock()
	notices := v.notices
	v.notices = nil
	n, err := b.output.read(into, v.next)
	v.next += uint64(n)
	b.mu.Unlock()
	if n > 0 {
		select {
		case b.moved <- struct{}{}:
		default:
		}
	}
	return notices, n, err
}

// send gives input to the machine if the viewer is the writer. A machine that does not take it for a while loses it, as on
// a serial line: otherwise nobody would notice that the client has gone.
func (v *viewer) send(ctx context.Context, data []byte) {
	b := v.broker
	b.mu.Lock()
	isWriter := b.isWriter(v)
	b.mu.Unlock()
	if !isWriter {
		return
	}
	data = append([]byte(nil), data...)
	select {
	case b.input <- data:
		v.jammed = false
		return
	default:
	}
	if v.jammed {
		return
	}
	timer := time.NewTimer(b.limits.Stall)
	defer timer.Stop()
	select {
	case b.input <- data:
	case <-ctx.Done():
	case <-timer.C:
		v.jammed = true
		b.mu.Lock()
		defer b.mu.Unlock()
		b.notify(v, "The machine does not read its console. Input is lost until it does.")
	}
}
