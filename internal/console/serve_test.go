package console_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/keelson-dev/keelson/internal/console"
	"github.com/keelson-dev/keelson/internal/testing/browser"
)

// sshKey is the key of the user of the console.
const sshKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl keelson"

// serve runs a console for an API until the end of the test.
func serve(t testing.TB, config *rest.Config) *console.Console {
	t.Helper()
	c, _ := serveUntil(t, config, 0)
	return c
}

// openPage serves a console for an API, and opens a page of it. expected are parts of the errors that the test brings about.
func openPage(t testing.TB, config *rest.Config, page string, expected ...string) *browser.Tab {
	t.Helper()
	c := serve(t, config)
	b := browser.New(t) // closed before the console
	for _, part := range expected {
		b.Expect(part)
	}
	b.Open(strings.Replace(c.URL(), "/#", page+"#", 1))
	return b
}

// serveUntil runs a console until stop is called, or until the end of the test.
func serveUntil(t testing.TB, config *rest.Config, port int) (c *console.Console, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	c, err := console.Listen(ctx, console.Options{Config: config, Port: port, Cluster: "test", Version: "v0", SSHKey: func() (string, error) { return sshKey, nil }})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.Serve(ctx); err != nil {
			t.Errorf("Serve the console: %v", err)
		}
	})
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return c, stop
}
