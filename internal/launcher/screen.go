package launcher

import (
	"context"
	"net"
	"net/http"

	"github.com/keelson-dev/keelson/internal/driver/display"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

// screen serves a connection to the display of the machine.
func (a *access) screen(w http.ResponseWriter, r *http.Request) {
	var conn net.Conn
	err := a.ask(r, func(ctx context.Context, monitor *qmp.Client) (err error) {
		conn, err = display.Connect(ctx, monitor)
		return err
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	relay(w, r, conn.(*net.UnixConn)) //nolint:forcetypeassert // it is one
}

// screenshot serves what the display of the machine shows.
func (a *access) screenshot(w http.ResponseWriter, r *http.Request) {
	var image []byte
	err := a.ask(r, func(ctx context.Context, monitor *qmp.Client) (err error) {
		image, err = display.Screenshot(ctx, monitor, a.dirs.Run)
		return err
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write(image) // the manager may be gone
}

// ask calls do with the monitor of QEMU and a limit for its commands. The end of the request does not end them: one that was written in part
// would end the connection, and with it the machine.
func (a *access) ask(r *http.Request, do func(context.Context, *qmp.Client) error) error {
	monitor := a.monitor()
	if monitor == nil {
		return errNoGuest
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), monitorTimeout)
	defer cancel()
	return do(ctx, monitor)
}
