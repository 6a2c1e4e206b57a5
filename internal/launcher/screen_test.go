package launcher

import (
	"image/png"
	"io"
	"net/http"
	"path/filepath"
	"testing"
)

// The display of a machine is seen by several, who see it end with the machine.
func TestScreen(t *testing.T) {
	m := newMachine(t)
	m.firmware() // it shows as much as a guest
	m.definition.Display = true
	m.run()
	m.awaitReady()
	client := manager()
	shot := m.call(client, ScreenshotPath, token, nil)
	if picture, err := png.Decode(shot.Body); err != nil || picture.Bounds().Empty() {
		t.Errorf("the screenshot: %s, %v", shot.Status, err)
	}
	if left, err := filepath.Glob(filepath.Join(m.dirs.Run, "screenshot-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
	var screens []*http.Response
	for range 2 {
		input, write := io.Pipe()
		t.Cleanup(func() { _ = write.Close() })
		screen := m.call(client, ScreenPath, token, input)
		greeting := make([]byte, len("RFB 003.008\n"))
		if _, err := io.ReadFull(screen.Body, greeting); err != nil || string(greeting) != "RFB 003.008\n" {
			t.Errorf("the VNC server greets with %q, %v", greeting, err)
		}
		screens = append(screens, screen)
	}
	m.kill()
	for _, screen := range screens {
		_, _ = io.Copy(io.Discard, screen.Body) // the connection may end before the response
	}
}
