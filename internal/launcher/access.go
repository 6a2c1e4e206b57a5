package launcher

import (
	"context"
	"crypto/subtle"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/keelson-dev/keelson/internal/machine/owner"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

const (
	// monitorTimeout is the response timeout of QEMU.
	monitorTimeout = 10 * time.Second
	// guestTimeout limits a connection to the guest. It is needed because not every client ends its attempts: while the guest boots,
	// they would pile up.
	guestTimeout = 5 * time.Second
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
}

// register adds the paths of the manager.
func (a *access) register(mux *http.ServeMux) {
	mux.HandleFunc("POST "+ConsolePath, a.guard(a.console))
	mux.HandleFunc("POST "+ScreenPath, a.guard(a.screen))
	mux.HandleFunc("POST "+ScreenshotPath, a.guard(a.screenshot))
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

func (l *launcher) dial(w http.ResponseWriter, r *http.Request) {
	port, err := strconv.ParseUint(r.URL.Query().Get(PortParameter), 10, 16)
	if err != nil || port == 0 {
		http.Error(w, "the port must be a number from 1 to 65535", http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), guestTimeout)
	defer cancel()
	conn, err := l.dialGuest(ctx, uint16(port))
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

// relay copies between a request and a connection, until the connection or the client ends.
func relay(w http.ResponseWriter, r *http.Request, conn halfCloser) {
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
