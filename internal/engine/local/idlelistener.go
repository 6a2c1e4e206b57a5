package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxWaiting is the number of clients that an idle listener lets wait. Others wait in the queue of the kernel. Nothing of a
	// waiting client is read, so that its data is limited to the buffers of its connection.
	maxWaiting = 64
	// longestWait is how long a client may wait until the API responds.
	longestWait = 2 * time.Minute
	// lookInterval is the time between two looks whether the API listens.
	lookInterval = 10 * time.Millisecond
	// drainTime is how long an idle listener accepts after that: closing it breaks connections that are in its queue.
	drainTime = 5 * time.Millisecond
)

// idleListener listens at the address of the API of an idle cluster. A client that connects waits until the cluster has started; then the
// listener passes its bytes on. Clients that connect after the API itself listens reach it directly.
type idleListener struct {
	address   netip.AddrPort
	listener  *net.TCPListener
	onContact func() // is called after the first connection; must not block

	ctx    context.Context // of all connections
	cancel context.CancelFunc
	wg     sync.WaitGroup

	listening, contacted atomic.Bool
	used                 atomic.Int64 // connections
	opened               chan struct{}
	openOnce             sync.Once
	target               string // of connections; set before opened is closed
}

// newIdleListener listens at an address where nobody else does.
func newIdleListener(address string, onContact func()) (*idleListener, error) {
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
	l := &idleListener{address: at, onContact: onContact, opened: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	shared := net.ListenConfig{Control: sharePort}
	listener, err := shared.Listen(l.ctx, "tcp", address)
	if err != nil {
		l.cancel()
		return nil, err
	}
	l.listener = listener.(*net.TCPListener)
	l.listening.Store(true)
	l.wg.Go(l.serve)
	return l, nil
}

// sharePort lets kube-apiserver listen at the same address while the listener still does, so that no client is refused in between.
func sharePort(_, _ string, conn syscall.RawConn) error {
	var failed error
	err := conn.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
	return errors.Join(err, failed)
}

func (l *idleListener) isListening() bool { return l.listening.Load() }

// holds reports whether the listener listens at a port of an address.
func (l *idleListener) holds(address string, port int) bool {
	return l.isListening() && l.address.Addr().String() == address && int(l.address.Port()) == port
}

func (l *idleListener) wasContacted() bool { return l.contacted.Load() }
func (l *idleListener) isUsed() bool       { return l.used.Load() > 0 }

// serve accepts clients until the listener is closed or its deadline has passed.
func (l *idleListener) serve() {
	defer l.stopListening()
	places := make(chan struct{}, maxWaiting)
	for {
		select {
		case places <- struct{}{}:
		case <-l.ctx.Done():
			return
		case <-l.opened:
			return
		}
		conn, err := l.listener.AcceptTCP()
		if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if err != nil { // there are too many open files, for example
			<-places
			time.Sleep(lookInterval) // instead of a busy loop
			continue
		}
		l.used.Add(1)
		if !l.contacted.Swap(true) {
			l.onContact()
		}
		l.wg.Go(func() {
			defer l.used.Add(-1)
			defer conn.Close() //nolint:errcheck // both ends are done with it
			isOpen := l.await()
			<-places
			if isOpen {
				l.pass(conn)
			}
		})
	}
}

// await waits until the listener is opened. It returns false if it was closed, or if that took too long.
func (l *idleListener) await() bool {
	timer := time.NewTimer(longestWait)
	defer timer.Stop()
	select {
	case <-l.opened:
		return true
	case <-l.ctx.Done():
	case <-timer.C:
	}
	return false
}

// handOver makes the listener stop listening as soon as the API listens at the same address. It returns at once; the context is that
// of the start.
func (l *idleListener) handOver(ctx context.Context) {
	l.wg.Go(func() {
		ticker := time.NewTicker(lookInterval)
		defer ticker.Stop()
		for l.isListening() {
			select {
			case <-ctx.Done():
				return
			case <-l.ctx.Done():
				return
			case <-l.opened:
				return
			case <-ticker.C:
			}
			if all, err := readSockets(); err == nil && listeners(all, l.address) > 1 {
				_ = l.listener.SetDeadline(time.Now().Add(drainTime)) // it fails if it was closed
				time.AfterFunc(2*drainTime, l.stopListening)          // serve may wait for a place
				return
			}
		}
	})
}

// open passes the clients that wait on to the API, whose URL is https://host:port, and listens no longer.
func (l *idleListener) open(server string) {
	l.openOnce.Do(func() {
		l.stopListening()
		l.target = strings.TrimPrefix(server, "https://")
		close(l.opened)
	})
}

func (l *idleListener) stopListening() {
	l.listening.Store(false)
	_ = l.listener.Close() // it may be closed
}

// pass copies the bytes of a client and of the API to each other.
func (l *idleListener) pass(client *net.TCPConn) {
	dialer := net.Dialer{Timeout: longestWait}
	conn, err := dialer.DialContext(l.ctx, "tcp", l.target)
	if err != nil {
		return
	}
	api := conn.(*net.TCPConn)
	defer api.Close() //nolint:errcheck // both ends are done with it
	defer context.AfterFunc(l.ctx, func() {
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

// close stops listening and closes all connections.
func (l *idleListener) close() {
	l.cancel()
	l.stopListening()
	l.wg.Wait()
}
