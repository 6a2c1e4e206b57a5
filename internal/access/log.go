package access

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/keelson-dev/keelson/internal/access/client"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// blockSize is how much is copied at a time.
const blockSize = 32 << 10

// errNoConsole means that a driver has no console.
func errNoConsole(t *target) error {
	return refuse(http.StatusNotImplemented, "machines of the driver %s have no console", t.driver.Name())
}

// serveLog serves the log of the serial console.
func (s *Server) serveLog(w http.ResponseWriter, r *http.Request, t *target) error {
	options := backend.LogOptions{Tail: -1}
	if text := r.URL.Query().Get(client.ParameterTail); text != "" {
		lines, err := strconv.Atoi(text)
		if err != nil || lines < 0 {
			return refuse(http.StatusBadRequest, "the parameter %s must be a number of lines, not %q", client.ParameterTail, text)
		}
		options.Tail = lines
	}
	var err error
	if options.Follow, err = booleanOf(r, client.ParameterFollow, false); err != nil {
		return err
	}
	consoler, ok := t.driver.(backend.Consoler)
	if !ok {
		return errNoConsole(t)
	}
	x, err := s.begin(r, t, client.Log)
	if err != nil {
		return err
	}
	defer x.end()
	stop := context.AfterFunc(r.Context(), func() { x.cancel(errLeft) })
	defer stop()
	log, err := consoler.ConsoleLog(x.ctx, t.Identity, options)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // it was only read
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	if err := x.copyLog(w, log); err != nil && !errors.Is(err, io.EOF) && x.ctx.Err() == nil {
		x.cancel(err)
	}
	return nil
}

// copyLog sends a log until its end or that of the session.
func (x *session) copyLog(w http.ResponseWriter, log io.Reader) error {
	controller := http.NewResponseController(w)
	flush := func() error {
		if err := controller.SetWriteDeadline(time.Now().Add(x.server.options.Limits.Stall)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		return controller.Flush()
	}
	if err := flush(); err != nil { // the headers, before the first output
		return err
	}
	defer controller.SetWriteDeadline(time.Time{}) //nolint:errcheck // the connection may have another request
	block := make([]byte, blockSize)
	for {
		n, err := log.Read(block)
		if n > 0 {
			x.touch()
			if _, err := w.Write(block[:n]); err != nil {
				return err
			}
			if err := flush(); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}
