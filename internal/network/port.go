package network

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	lengthLen = 4 // the length before each frame, in network byte order

	// qemuMaxFrame is the longest frame that QEMU sends. After a longer one, the stream is out of step.
	qemuMaxFrame = 4096 + 65536

	// queueLen bounds what waits for a machine that reads slowly: 4.6 MB. A burst of TCP has to fit.
	queueLen = 512
	// batchLen is how many frames are written at once.
	batchLen = 64

	readBuffer = 64 << 10

	// Delays between attempts to connect to QEMU: short ones while it is expected, so that its machine does not wait.
	minRedial     = 10 * time.Millisecond
	maxRedial     = 50 * time.Millisecond
	lateRedial    = 500 * time.Millisecond
	redialSoonFor = 10 * time.Second
)

// frame is a frame with its length before it, as QEMU reads it.
type frame struct {
	size int // of all
	data [lengthLen + maxFrame]byte
}

var frames = sync.Pool{New: func() any { return new(frame) }}

// bytes are the frame without its length.
func (f *frame) bytes() []byte { return f.data[lengthLen:f.size] }

// newFrame returns a frame for size bytes, at most maxFrame.
func newFrame(size int) *frame {
	f := frames.Get().(*frame)
	f.size = lengthLen + size
	binary.BigEndian.PutUint32(f.data[:], uint32(size))
	return f
}

// port is the switch's side of a machine's network card. Its identity never changes: a machine with another one gets a new
// port.
type port struct {
	identity
	uid    string
	socket string

	// machine are the rules, replaced by Apply.
	machine atomic.Pointer[Machine]

	queue     chan *frame
	connected atomic.Bool
	failure   atomic.Pointer[string] // why it is not connected
	leased    atomic.Bool
	leasedAt  atomic.Int64 // unix nanoseconds
	// wanted means that someone wants to reach the machine, which is asleep. retains means that the queue has frames for when it
	// is awake.
	wanted, retains atomic.Bool

	bytesIn, bytesOut, packetsIn, packetsOut atomic.Uint64
	drops                                    [reasons]atomic.Uint64

	limits limits
	flows  flows
	echo   echoFlows
	cancel context.CancelFunc
	redial chan struct{} // receives a value when QEMU is about to start
	done   chan struct{} // closed when run has ended
}

// redialSoon makes run expect QEMU.
func (p *port) redialSoon() {
	select {
	case p.redial <- struct{}{}:
	default:
	}
}

func (p *port) drop(why reason) { p.drops[why].Add(1) }

// send queues a frame for the machine, and takes it over.
func (p *port) send(f *frame) {
	if !p.connected.Load() && !p.retain() {
		frames.Put(f)
		return
	}
	size := f.size - lengthLen
	select {
	case p.queue <- f:
		p.packetsIn.Add(1)
		p.bytesIn.Add(uint64(size))
	default:
		p.drop(dropOverflow)
		frames.Put(f)
	}
}

// sendFrom queues a frame of the gateway. build appends the frame, which must fit.
func (p *port) sendFrom(build func([]byte) []byte) {
	f := frames.Get().(*frame)
	built := build(f.data[lengthLen:lengthLen])
	f.size = lengthLen + len(built)
	binary.BigEndian.PutUint32(f.data[:], uint32(len(built)))
	p.send(f)
}

// run keeps the port connected to QEMU until the context ends.
func (p *port) run(ctx context.Context, receive func(*port, *frame)) {
	defer close(p.done)
	delay, since := minRedial, time.Now()
	for ctx.Err() == nil {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", p.socket)
		if err == nil {
			var frames uint64
			frames, err = p.serve(ctx, conn, receive)
			if frames > 0 {
				delay, since = minRedial, time.Now()
			}
		}
		text := err.Error()
		p.failure.Store(&text)
		select {
		case <-ctx.Done():
		case <-p.redial:
			delay, since = minRedial, time.Now()
			continue
		case <-time.After(delay):
		}
		if delay = min(2*delay, maxRedial); time.Since(since) > redialSoonFor {
			delay = lateRedial
		}
	}
}

// serve carries frames on one connection until it ends. It returns how many were received and why it ended.
func (p *port) serve(ctx context.Context, conn net.Conn, receive func(*port, *frame)) (uint64, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	if !p.retains.Swap(false) {
		p.drain()
	}
	p.failure.Store(nil)
	p.connected.Store(true)
	p.wanted.Store(false)
	ended := make(chan struct{})
	written := make(chan struct{})
	go func() {
		defer close(written)
		p.write(conn, ended)
	}()
	count, err := p.read(conn, receive)
	p.connected.Store(false)
	stop()
	_ = conn.Close()
	close(ended)
	<-written
	return count, err
}

// drain forgets what was queued for an earlier connection.
func (p *port) drain() {
	for {
		select {
		case f := <-p.queue:
			frames.Put(f)
		default:
			return
		}
	}
}

// write sends what is queued, several frames at a time. If the machine does not read, it waits here, and only here.
func (p *port) write(conn net.Conn, ended <-chan struct{}) {
	batch := make([]*frame, 0, batchLen)
	views := make([][]byte, 0, batchLen)
	for {
		select {
		case <-ended:
			return
		case f := <-p.queue:
			batch = append(batch[:0], f)
		}
		for len(batch) < batchLen && len(p.queue) > 0 {
			batch = append(batch, <-p.queue) // nobody else receives while there is a connection
		}
		views = views[:0]
		for _, f := range batch {
			views = append(views, f.data[:f.size])
		}
		buffers := net.Buffers(views)
		_, err := buffers.WriteTo(conn)
		for _, f := range batch {
			frames.Put(f)
		}
		if err != nil {
			_ = conn.Close() // ends the reader
			return
		}
	}
}

var errFraming = errors.New("QEMU's stream of frames is out of step")

// read hands received frames over until the connection ends.
func (p *port) read(conn net.Conn, receive func(*port, *frame)) (count uint64, err error) {
	reader := bufio.NewReaderSize(conn, readBuffer)
	var length [lengthLen]byte
	for {
		if _, err := io.ReadFull(reader, length[:]); err != nil {
			return count, fmt.Errorf("the connection to QEMU has ended: %w", err)
		}
		size := int(binary.BigEndian.Uint32(length[:]))
		if size > qemuMaxFrame {
			p.drop(dropOversized)
			return count, fmt.Errorf("%w: a frame of %d bytes", errFraming, uint32(size))
		}
		p.packetsOut.Add(1)
		p.bytesOut.Add(uint64(size))
		count++
		if size > maxFrame {
			p.drop(dropOversized)
			if _, err := reader.Discard(size); err != nil {
				return count, fmt.Errorf("the connection to QEMU has ended: %w", err)
			}
			continue
		}
		f := newFrame(size)
		if _, err := io.ReadFull(reader, f.bytes()); err != nil {
			frames.Put(f)
			return count, fmt.Errorf("the connection to QEMU has ended: %w", err)
		}
		receive(p, f)
	}
}

// status returns the state of the port.
func (p *port) status() MachineStatus {
	machine := p.machine.Load()
	status := MachineStatus{
		UID: p.uid, Name: machine.Name, Address: p.addr,
		Connected: p.connected.Load(), Leased: p.leased.Load(),
		BytesIn: p.bytesIn.Load(), BytesOut: p.bytesOut.Load(), PacketsIn: p.packetsIn.Load(), PacketsOut: p.packetsOut.Load(),
		Connections: p.flows.count(), Inbound: p.flows.inbound(), InboundTotal: p.flows.inboundTotal.Load(),
	}
	if failure := p.failure.Load(); failure != nil && !status.Connected {
		status.Error = *failure
	}
	if at := p.leasedAt.Load(); at != 0 {
		t := time.Unix(0, at).UTC()
		status.LeasedAt = &t
	}
	for i := range p.drops {
		if n := p.drops[i].Load(); n > 0 {
			if status.DropsBy == nil {
				status.DropsBy = map[string]uint64{}
			}
			status.DropsBy[reasonNames[i]] = n
			status.Drops += n
		}
	}
	return status
}
