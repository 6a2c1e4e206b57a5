package launcher

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/keelson-dev/keelson/internal/machine/owner"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

const (
	// monitorTimeout is the response timeout of QEMU.
	monitorTimeout = 10 * time.Second
	// firstDialPause is how soon a connection to the guest is looked at for the first time, lastDialPause the longest interval.
	firstDialPause, lastDialPause = 2 * time.Millisecond, 200 * time.Millisecond
	// guestTimeout limits a connection to the guest. It is needed because not every client ends its attempts: while the guest boots,
	// they would pile up.
	guestTimeout = 5 * time.Second
	// firstAttempt limits the first of two attempts. QEMU's network repeats a packet that a guest without an address has missed only
	// after 6 seconds.
	firstAttempt = time.Second
	// dialAttempts is the number of ports that are tried for a forward.
	dialAttempts = 3
	// relayBlock is how much is copied at a time.
	relayBlock = 32 << 10
)

// access serves the manager: the console and the display of the machine, connections to its guest, and pauses. Requests are HTTP/2, whose streams are the
// connections. They are accepted only from within the Pod, which is where the API server's port forwarding ends, and only with the
// token of the machine: the guest reaches the loopback address of its Pod, too.
type access struct {
	dirs Dirs
	// monitor returns the connection to QEMU; nil while there is no guest.
	monitor func() *qmp.Client

	mu sync.Mutex
	// progress is how far the import of the image is.
	progress string
}

func (a *access) setProgress(progress string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.progress = progress
}

func (a *access) serveProgress(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	progress := a.progress
	a.mu.Unlock()
	_, _ = io.WriteString(w, progress) // the manager may be gone
}

// register adds the paths of the manager.
func (a *access) register(mux *http.ServeMux) {
	mux.HandleFunc("POST "+ConsolePath, a.guard(a.console))
	mux.HandleFunc("POST "+DialPath, a.guard(a.dial))
	mux.HandleFunc("POST "+ScreenPath, a.guard(a.screen))
	mux.HandleFunc("POST "+ScreenshotPath, a.guard(a.screenshot))
	mux.HandleFunc("POST "+ProgressPath, a.guard(a.serveProgress))
}

// guard rejects requests that are not from the manager.
func (a *access) guard(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// The token is read each time: it is written again if somebody has deleted the Secret.
		token, err := os.ReadFile(filepath.Join(a.dirs.Seed, TokenFile))
		given, bears := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		from, fromErr := netip.ParseAddrPort(r.RemoteAddr)
		switch {
		case err != nil || len(token) == 0 || !bears || subtle.ConstantTimeCompare([]byte(given), token) != 1,
			fromErr != nil || !from.Addr().Unmap().IsLoopback():
			http.Error(w, "this is for the manager only", http.StatusForbidden)
		case r.ProtoMajor < 2:
			http.Error(w, "this requires HTTP/2", http.StatusHTTPVersionNotSupported)
		default:
			serve(w, r)
		}
	}
}

func (a *access) console(w http.ResponseWriter, r *http.Request) {
	conn, err := qmp.DialUnix(r.Context(), filepath.Join(a.dirs.Run, qemu.ConsoleSocket))
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	relay(w, r, conn)
}

func (a *access) dial(w http.ResponseWriter, r *http.Request) {
	port, err := strconv.ParseUint(r.URL.Query().Get(PortParameter), 10, 16)
	if err != nil || port == 0 {
		http.Error(w, "the port must be a number from 1 to 65535", http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), guestTimeout)
	defer cancel()
	first, cancelFirst := context.WithTimeout(ctx, firstAttempt)
	defer cancelFirst()
	conn, err := a.dialGuest(first, uint16(port))
	if first.Err() != nil && err != nil {
		conn, err = a.dialGuest(ctx, uint16(port))
	}
	switch {
	case errors.Is(err, errNoGuest):
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadGateway)
	default:
		relay(w, r, conn)
	}
}

// errNoGuest means that QEMU does not run.
var errNoGuest = owner.ErrNotOn

// dialGuest opens a connection to a port of the guest. QEMU's network has a forward of its own for each attempt, at a port of the
// loopback address that exists only meanwhile: so the state of the connection is found in QEMU's table, and a guest that refuses it is
// told from one that accepts it.
func (a *access) dialGuest(ctx context.Context, port uint16) (*net.TCPConn, error) {
	monitor := a.monitor()
	if monitor == nil {
		return nil, errNoGuest
	}
	forward, err := addForward(ctx, monitor, port)
	if err != nil {
		return nil, err
	}
	defer func() {
		_, _ = human(ctx, monitor, "hostfwd_remove net "+forwardOf(forward)) // it ends with QEMU at the latest
	}()
	opened, err := new(net.Dialer).DialContext(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(forward)))
	if err != nil {
		return nil, err
	}
	conn := opened.(*net.TCPConn) //nolint:forcetypeassert // it is one
	if err := awaitGuest(ctx, monitor, forward, conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func forwardOf(port int) string { return "tcp:127.0.0.1:" + strconv.Itoa(port) }

// addForward adds a forward to a port of the guest, and returns its port of the loopback address.
func addForward(ctx context.Context, monitor *qmp.Client, port uint16) (forward int, err error) {
	for range dialAttempts {
		// QEMU cannot say which port it has chosen, so it gets one that was just free.
		listener, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		forward := listener.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // it is one
		if err := listener.Close(); err != nil {
			return 0, err
		}
		refused, err := human(ctx, monitor, fmt.Sprintf("hostfwd_add net %s-:%d", forwardOf(forward), port))
		if err != nil {
			return 0, fmt.Errorf("%w: %w", errNoGuest, err)
		}
		if refused == "" {
			return forward, nil
		}
	}
	return 0, errors.New("QEMU has no free port for the connection")
}

// awaitGuest waits until the guest has accepted the connection of a forward.
func awaitGuest(ctx context.Context, monitor *qmp.Client, forward int, conn *net.TCPConn) error {
	for pause := firstDialPause; ; pause = min(2*pause, lastDialPause) {
		table, err := human(ctx, monitor, "info usernet")
		if err != nil {
			return fmt.Errorf("%w: %w", errNoGuest, err)
		}
		switch state := stateOf(table, forward); state {
		case "", "CLOSED", "SYN_SENT", "SYN_RCVD":
			if isClosed(conn) {
				return errors.New("the guest refuses the connection")
			}
		default:
			return nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return errors.New("the guest does not answer")
		case <-timer.C:
		}
	}
}

// stateOf returns the state of the connection that was accepted at a forward; empty if there is none. table is that of the command
// info usernet: protocol with state, descriptor, address and port of both sides, queues.
func stateOf(table string, forward int) string {
	for line := range strings.Lines(table) {
		words := strings.Fields(line)
		if len(words) < 4 || words[3] != strconv.Itoa(forward) {
			continue
		}
		state, isTCP := strings.CutPrefix(words[0], "TCP[")
		if state = strings.TrimSuffix(state, "]"); isTCP && state != "HOST_FORWARD" {
			return state
		}
	}
	return ""
}

// isClosed reports whether the peer has closed a connection without sending anything.
func isClosed(conn *net.TCPConn) (closed bool) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return true
	}
	err = raw.Control(func(fd uintptr) {
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		closed = n == 0 && err == nil || err != nil && !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR)
	})
	return closed || err != nil
}

// human runs a command for people, and returns what it prints. The end of ctx does not end it: a command that was written in part
// would end the connection, and with it the machine.
func human(ctx context.Context, monitor *qmp.Client, command string) (output string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), monitorTimeout)
	defer cancel()
	err = monitor.Run(ctx, "human-monitor-command", map[string]any{"command-line": command}, &output)
	return strings.TrimSpace(output), err
}

// relay copies between a request and a connection, until the connection or the client ends.
func relay(w http.ResponseWriter, r *http.Request, conn interface {
	net.Conn
	CloseWrite() error
},
) {
	stop := context.AfterFunc(r.Context(), func() { _ = conn.Close() })
	defer stop()
	controller := http.NewResponseController(w)
	w.WriteHeader(http.StatusOK)
	if controller.Flush() != nil {
		_ = conn.Close()
		return
	}
	var copying sync.WaitGroup
	copying.Go(func() {
		_, _ = io.Copy(conn, r.Body) // the other direction fails, too
		_ = conn.CloseWrite()
	})
	block := make([]byte, relayBlock)
	for {
		n, err := conn.Read(block)
		if n > 0 {
			if _, err := w.Write(block[:n]); err != nil {
				break
			}
			if controller.Flush() != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	_ = conn.Close() // it has ended
	_ = r.Body.Close()
	copying.Wait()
}
