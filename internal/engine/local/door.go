package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxWaiting is the number of clients that a door lets wait. Others wait in the queue of the kernel. Nothing of a waiting client
	// is read, so that its data is limited to the buffers of its connection.
	maxWaiting = 64
	// longestWait is how long a client may wait until the API responds.
	longestWait = 2 * time.Minute
	// lookInterval is the time between two looks whether the API listens.
	lookInterval = 10 * time.Millisecond
	// drainTime is how long a door accepts after that: closing it breaks connections that are in its queue.
	drainTime = 5 * time.Millisecond
)

// door listens at the address of the API of an idle cluster. A client that connects has to wait until the cluster was started; then
// the door passes its bytes on. All clients that come after the API listens itself are none of its business.
type door struct {
	address  netip.AddrPort
	listener *net.TCPListener
	knock    func() // is called after the first connection; must not block

	ctx    context.Context // of all connections
	cancel context.CancelFunc
	wg     sync.WaitGroup

	listening, knocked atomic.Bool
	used               atomic.Int64 // connections
	opened             chan struct{}
	openOnce           sync.Once
	target             string // of connections; set before opened is closed
}

// newDoor listens at an address where nobody else does.
func newDoor(address string, knock func()) (*door, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("the address of the API: %w", err)
	}
	// With SO_REUSEPORT alone, the address may be shared with another program of this user that has set it, too.
	alone, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	if err := alone.Close(); err != nil {
		return nil, err
	}
	d := &door{address: at, knock: knock, opened: make(chan struct{})}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	shared := net.ListenConfig{Control: sharePort}
	listener, err := shared.Listen(d.ctx, "tcp", address)
	if err != nil {
		d.cancel()
		return nil, err
	}
	d.listener = listener.(*net.TCPListener)
	d.listening.Store(true)
	d.wg.Go(d.serve)
	return d, nil
}

// sharePort lets kube-apiserver listen at the same address while the door still does, so that no client is refused in between.
func sharePort(_, _ string, conn syscall.RawConn) error {
	var failed error
	err := conn.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
	return errors.Join(err, failed)
}

func (d *door) isListening() bool { return d.listening.Load() }

// holds reports whether the door listens at a port of an address.
func (d *door) holds(address string, port int) bool {
	return d.isListening() && d.address.Addr().String() == address && int(d.address.Port()) == port
}

func (d *door) isKnocked() bool { return d.knocked.Load() }
func (d *door) isUsed() bool    { return d.used.Load() > 0 }

// serve accepts clients until the listener is closed or its deadline has passed.
func (d *door) serve() {
	defer d.stopListening()
	places := make(chan struct{}, maxWaiting)
	for {
		select {
		case places <- struct{}{}:
		case <-d.ctx.Done():
			return
		case <-d.opened:
			return
		}
		conn, err := d.listener.AcceptTCP()
		if errors.Is(err, net.ErrClosed) || isTimeout(err) {
			return
		}
		if err != nil { // there are too many open files, for example
			<-places
			time.Sleep(lookInterval) //nolint:forbidigo // a short pause instead of a busy loop
			continue
		}
		d.used.Add(1)
		if !d.knocked.Swap(true) {
			d.knock()
		}
		d.wg.Go(func() {
			defer d.used.Add(-1)
			defer conn.Close() //nolint:errcheck // both ends are done with it
			isOpen := d.await()
			<-places
			if isOpen {
				d.pass(conn)
			}
		})
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// await waits until the door is opened. It returns false if it was closed, or if that took too long.
func (d *door) await() bool {
	timer := time.NewTimer(longestWait)
	defer timer.Stop()
	select {
	case <-d.opened:
		return true
	case <-d.ctx.Done():
	case <-timer.C:
	}
	return false
}

// leaveTo makes the door stop to listen as soon as the API listens at the same address. It returns at once; the context is that of the
// start.
func (d *door) leaveTo(ctx context.Context) {
	d.wg.Go(func() {
		ticker := time.NewTicker(lookInterval)
		defer ticker.Stop()
		for d.isListening() {
			select {
			case <-ctx.Done():
				return
			case <-d.ctx.Done():
				return
			case <-d.opened:
				return
			case <-ticker.C:
			}
			if all, err := readSockets(); err == nil && listeners(all, d.address) > 1 {
				_ = d.listener.SetDeadline(time.Now().Add(drainTime)) // it fails if it was closed
				time.AfterFunc(2*drainTime, d.stopListening)          // serve may wait for a place
				return
			}
		}
	})
}

// open passes the clients that wait on to the API, whose URL is https://host:port, and listens no longer.
func (d *door) open(server string) {
	d.openOnce.Do(func() {
		d.stopListening()
		d.target = strings.TrimPrefix(server, "https://")
		close(d.opened)
	})
}

func (d *door) stopListening() {
	d.listening.Store(false)
	_ = d.listener.Close() // it may be closed
}

// pass copies the bytes of a client and of the API to each other.
func (d *door) pass(client *net.TCPConn) {
	dialer := net.Dialer{Timeout: longestWait}
	conn, err := dialer.DialContext(d.ctx, "tcp", d.target)
	if err != nil {
		return
	}
	api := conn.(*net.TCPConn)
	defer api.Close() //nolint:errcheck // both ends are done with it
	defer context.AfterFunc(d.ctx, func() {
		_, _ = client.Close(), api.Close() // both copies end
	})()
	var both sync.WaitGroup
	for _, ends := range [][2]*net.TCPConn{{client, api}, {api, client}} {
		both.Go(func() {
			_, _ = io.Copy(ends[0], ends[1]) // each end learns from its connection what has become of the other
			_ = ends[0].CloseWrite()
		})
	}
	both.Wait()
}

// close stops to listen and closes all connections.
func (d *door) close() {
	d.cancel()
	d.stopListening()
	d.wg.Wait()
}
