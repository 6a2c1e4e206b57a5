package access

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/keelson-dev/keelson/internal/access/client"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// screenTimeout limits an attempt to connect to a screen, and a screenshot.
const screenTimeout = 10 * time.Second

// beginScreen begins a session with the display of a machine, and returns its driver if that has screens.
func (s *Server) beginScreen(r *http.Request, t *target, kind string) (backend.Screener, *session, error) {
	screener, ok := t.driver.(backend.Screener)
	if !ok {
		return nil, nil, refuse(http.StatusNotImplemented, "machines of the driver %s have no display", t.driver.Name())
	}
	x, err := s.beginAwake(r, t, kind)
	return screener, x, err
}

// serveScreen serves the display of a machine: a connection to its VNC server.
func (s *Server) serveScreen(w http.ResponseWriter, r *http.Request, t *target) error {
	if err := isUpgrade(r); err != nil {
		return err
	}
	screener, x, err := s.beginScreen(r, t, client.Screen)
	if err != nil {
		return err
	}
	defer x.end()
	ctx, cancel := context.WithTimeout(r.Context(), screenTimeout)
	defer cancel()
	conn, err := screener.Screen(ctx, t.Identity)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // it has ended
	socket, err := upgrade(w, r)
	if err != nil {
		return nil //nolint:nilerr // it has answered
	}
	x.join(socket, conn, "The screen of the machine was closed: it was powered off.")
	return nil
}

// serveScreenshot serves what the display of a machine shows.
func (s *Server) serveScreenshot(w http.ResponseWriter, r *http.Request, t *target) error {
	screener, x, err := s.beginScreen(r, t, client.Screenshot)
	if err != nil {
		return err
	}
	defer x.end()
	ctx, cancel := context.WithTimeout(x.ctx, screenTimeout)
	defer cancel()
	image, err := screener.Screenshot(ctx, t.Identity)
	if err != nil {
		return err
	}
	header := w.Header()
	header.Set("Content-Type", "image/png")
	header.Set("Content-Length", strconv.Itoa(len(image)))
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	if _, err := w.Write(image); err != nil {
		x.cancel(fmt.Errorf("send the screenshot: %w", err))
	}
	return nil
}
