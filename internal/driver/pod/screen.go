package pod

import (
	"context"
	"fmt"
	"io"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/display"
	"github.com/keelson-dev/keelson/internal/launcher"
)

// Screen implements backend.Screener through the launcher.
func (d *Driver) Screen(ctx context.Context, id backend.Identity) (io.ReadWriteCloser, error) {
	return d.connectDisplay(ctx, id, launcher.ScreenPath)
}

// Screenshot implements backend.Screener through the launcher.
func (d *Driver) Screenshot(ctx context.Context, id backend.Identity) ([]byte, error) {
	conn, err := d.connectDisplay(ctx, id, launcher.ScreenshotPath)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, conn.cancel)
	defer stop()
	defer conn.Close() //nolint:errcheck // it was read to its end
	image, err := display.Read(conn)
	if err != nil {
		return nil, fmt.Errorf("take a screenshot of machine %s: %w: %w", id.UID, backend.ErrUnavailable, err)
	}
	return image, nil
}

// connectDisplay is connect for a machine that was started with a display.
func (d *Driver) connectDisplay(ctx context.Context, id backend.Identity, path string) (*stream, error) {
	secret, pod, err := d.seen(ctx, id)
	if err != nil {
		return nil, err
	}
	if secret != nil && pod != nil && isOn(pod) {
		rec, err := recordOf(secret)
		if err != nil {
			return nil, err
		}
		definition, _ := definitionOf(pod)
		if err := display.Check(definition.Display, rec.Machine.Display != ""); err != nil {
			return nil, fmt.Errorf("connect to the screen of machine %s: %w: %w", id.UID, backend.ErrInvalid, err)
		}
	}
	return d.connect(ctx, id, "the screen", path)
}
