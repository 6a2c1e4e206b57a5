package launcher

import (
	"context"
	"net"
	"net/http"

	"github.com/keelson-dev/keelson/internal/driver/display"
)

// screen serves a connection to the display of the machine.
func (a *access) screen(w http.ResponseWriter, r *http.Request) {
	monitor := a.currentMonitor()
	if monitor == nil {
		http.Error(w, errNoGuest.Error(), http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := commandContext(r)
	defer cancel()
	conn, err := display.Connect(ctx, monitor)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	relay(w, r, conn.(*net.UnixConn)) //nolint:forcetypeassert // it is one
}

// screenshot serves what the display of the machine shows.
func (a *access) screenshot(w http.ResponseWriter, r *http.Request) {
	monitor := a.currentMonitor()
	if monitor == nil {
		http.Error(w, errNoGuest.Error(), http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := commandContext(r)
	defer cancel()
	image, err := display.Screenshot(ctx, monitor, a.dirs.Run)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write(image) // the manager may be gone
}

// commandContext limits the commands of QEMU for a request. The end of the request does not end them: one that was written in part would
// end the connection, and with it the machine.
func commandContext(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.Context()), monitorTimeout)
}
