package console_test

import (
	"context"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"k8s.io/client-go/rest"

	"github.com/keelson-dev/keelson/internal/console"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// browserTimeout is for all that a test does in the browser, on a busy machine.
const browserTimeout = 2 * time.Minute

// chromium is the browser of all tests of this package; its tabs share nothing.
var chromium struct {
	once sync.Once
	ctx  context.Context
	stop func()
	err  error
}

func startChromium() {
	path := os.Getenv("KEELSON_CHROMIUM")
	if path == "" {
		path, chromium.err = exec.LookPath("chromium")
	}
	if chromium.err != nil {
		return
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.WindowSize(1280, 900))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	chromium.ctx, chromium.stop = ctx, func() { cancel(); stop() }
	chromium.err = chromedp.Do(ctx)
}

// stopChromium stops the browser after all tests.
func stopChromium() {
	if chromium.stop != nil {
		chromium.stop()
	}
}

// tab is a browser tab with its own cookies and storage. A test fails for each error that its page reports, unless it
// is expected.
type tab struct {
	t   testing.TB
	ctx context.Context

	mu      sync.Mutex
	expects []string
	errors  []string
}

// newTab opens a tab. It is skipped without Chromium.
func newTab(t testing.TB) *tab {
	t.Helper()
	chromium.once.Do(startChromium)
	if chromium.err != nil {
		t.Skipf("No Chromium: %v", chromium.err)
	}
	ctx, cancel := chromedp.NewContext(chromium.ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, browserTimeout)
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx}
	messages := chromedp.Console(ctx)
	go b.collect(messages)
	t.Cleanup(b.check)
	return b
}

// expect names a part of the errors that the test brings about.
func (b *tab) expect(part string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expects = append(b.expects, part)
}

// collect keeps the errors and warnings of the page, also those about its security policy.
func (b *tab) collect(messages iter.Seq2[chromedp.ConsoleMessage, error]) {
	for m, err := range messages {
		if err != nil {
			return
		}
		if m.IsException() || m.Type == "error" || m.Type == "warning" {
			b.mu.Lock()
			b.errors = append(b.errors, m.String())
			b.mu.Unlock()
		}
	}
}

// check fails the test for errors in the console of the browser.
func (b *tab) check() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, text := range b.errors {
		expected := false
		for _, part := range b.expects {
			expected = expected || strings.Contains(text, part)
		}
		if !expected {
			b.t.Errorf("The console of the browser has: %s", text)
		}
	}
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatalf("%v\nThe page:\n%s", err, b.text())
	}
}

// open opens a path of the console in this tab.
func (b *tab) open(url string) {
	b.t.Helper()
	b.do(chromedp.Navigate(url))
}

// press presses keys.
func (b *tab) press(keys string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(keys))
}

// text returns what the page shows.
func (b *tab) text() string {
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	text, _ := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText"))
	return text
}

// sees waits until the page shows all these texts.
func (b *tab) sees(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		b.until(fmt.Sprintf("document.body.innerText.toLowerCase().includes(%q)", strings.ToLower(text)))
	}
}

// until waits until an expression is true.
func (b *tab) until(expression string) {
	b.t.Helper()
	deadline := time.Now().Add(harness.WaitTimeout)
	for !value[bool](b, expression) {
		if time.Now().After(deadline) {
			b.t.Fatalf("never true: %s\nThe page:\n%s", expression, b.text())
		}
		select {
		case <-b.ctx.Done():
			b.t.Fatal(b.ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// value evaluates an expression.
func value[T any](b *tab, expression string) T {
	b.t.Helper()
	result, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v\nThe page:\n%s", expression, err, b.text())
	}
	return result
}

// keep writes a screenshot to the folder $KEELSON_SCREENSHOTS, in light and dark.
func (b *tab) keep(name string) {
	b.t.Helper()
	folder := os.Getenv("KEELSON_SCREENSHOTS")
	if folder == "" {
		return
	}
	for _, scheme := range []string{"light", "dark"} {
		features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}
		if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
			b.t.Fatal(err)
		}
		image, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		if err != nil {
			b.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name+"-"+scheme+".png"), image, 0o600); err != nil {
			b.t.Fatal(err)
		}
	}
}

// serve runs a console for an API until the end of the test.
func serve(t testing.TB, config *rest.Config, port int) *console.Console {
	t.Helper()
	c, _ := serveUntil(t, config, port)
	return c
}

// serveUntil runs a console until stop is called, or until the end of the test.
func serveUntil(t testing.TB, config *rest.Config, port int) (c *console.Console, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	c, err := console.Listen(ctx, console.Options{Config: config, Port: port, Cluster: "test", Version: "v0"})
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
