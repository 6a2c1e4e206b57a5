// Package browser drives Chromium in tests of pages.
package browser

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// browserTimeout is for all that a test does in the browser, on a busy machine.
const browserTimeout = 15 * time.Minute

// chromium is the browser of all tests of a package; its tabs share nothing.
var chromium struct {
	once sync.Once
	ctx  context.Context
	stop func()
	err  error
}

func startChromium() {
	path := os.Getenv("KEELSON_CHROMIUM")
	if path == "" {
		path, chromium.err = exec.LookPath("chromium-headless-shell") // it needs half of the processor time
	}
	if chromium.err != nil {
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

// Stop stops the browser after all tests.
func Stop() {
	if chromium.stop != nil {
		chromium.stop()
	}
}

// Tab is a browser tab with its own cookies and storage. A test fails for each error that its page reports, unless it
// is expected.
type Tab struct {
	t   testing.TB
	ctx context.Context

	mu      sync.Mutex
	expects []string
	errors  []string
}

// New opens a tab. It is skipped without Chromium.
func New(t testing.TB) *Tab {
	t.Helper()
	chromium.once.Do(startChromium)
	if chromium.err != nil {
		t.Skipf("No Chromium: %v", chromium.err)
	}
	ctx, cancel := chromedp.NewContext(chromium.ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, browserTimeout)
	t.Cleanup(cancel)
	b := &Tab{t: t, ctx: ctx}
	messages := chromedp.Console(ctx)
	go b.collect(messages)
	t.Cleanup(b.check)
	return b
}

// Expect names a part of the errors that the test brings about.
func (b *Tab) Expect(part string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expects = append(b.expects, part)
}

// collect keeps the errors and warnings of the page, also those about its security policy.
func (b *Tab) collect(messages iter.Seq2[chromedp.ConsoleMessage, error]) {
	for m, err := range messages {
		if err != nil {
			return
		}
		if m.IsException() || m.Type == "error" || m.Type == "warning" {
			b.mu.Lock()
			b.errors = append(b.errors, strings.TrimSpace(m.String()+" "+m.URL)) // a failed request is only named by its URL
			b.mu.Unlock()
		}
	}
}

// networkChanged ends requests of Chromium when an interface of the host comes or goes: other tests make networks.
const networkChanged = "net::ERR_NETWORK_CHANGED"

// othersDeleted is the read of an object without namespace that another test has deleted since the overview listed it.
var othersDeleted = regexp.MustCompile(`status of 404 .*/apis/clusterprovisioner\.rke\.io/v1alpha1/(clusters|clustersnapshots|kubeconfigs)/[^/]+$`)

// check fails the test for errors in the console of the browser.
func (b *Tab) check() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, text := range b.errors {
		expected := strings.Contains(text, networkChanged) || othersDeleted.MatchString(text)
		for _, part := range b.expects {
			expected = expected || strings.Contains(text, part)
		}
		if !expected {
			b.t.Errorf("The console of the browser has: %s", text)
		}
	}
}

// Do performs actions in the tab.
func (b *Tab) Do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatalf("%v\nThe page:\n%s", err, b.Text())
	}
}

// Open opens a path of the console in this tab.
func (b *Tab) Open(url string) {
	b.t.Helper()
	b.Do(chromedp.Navigate(url))
}

// Before runs a script in each page that is opened from now on, before its own.
func (b *Tab) Before(script string) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script}); err != nil {
		b.t.Fatal(err)
	}
}

// Press presses keys.
func (b *Tab) Press(keys string) {
	b.t.Helper()
	b.Do(chromedp.KeyEvent(keys))
}

// Text returns what the page shows.
func (b *Tab) Text() string {
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	text, _ := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText"))
	return text
}

// Sees waits until the page shows all these texts.
func (b *Tab) Sees(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		b.Until(fmt.Sprintf("document.body.innerText.toLowerCase().includes(%q)", strings.ToLower(text)))
	}
}

// Until waits until an expression is true.
func (b *Tab) Until(expression string) {
	b.t.Helper()
	if !b.within(harness.WaitTimeout, expression) {
		b.t.Fatalf("never true: %s\nThe page:\n%s", expression, b.Text())
	}
}

// PressUntil presses keys until an expression is true: again, if a slow machine took longer between them than the page waits.
func (b *Tab) PressUntil(keys, expression string) {
	b.t.Helper()
	for range pressAttempts {
		b.Press(keys)
		if b.within(harness.WaitTimeout/pressAttempts, expression) {
			return
		}
	}
	b.t.Fatalf("never true after %q: %s\nThe page:\n%s", keys, expression, b.Text())
}

// pressAttempts is how often PressUntil presses its keys.
const pressAttempts = 10

// within reports whether an expression becomes true within a time.
func (b *Tab) within(timeout time.Duration, expression string) bool {
	b.t.Helper()
	deadline := time.Now().Add(timeout)
	// The text of a page is expensive, and the page needs the processor too.
	for pause := 10 * time.Millisecond; !b.holds(expression); pause = min(2*pause, 100*time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
		b.Pause(pause)
	}
	return true
}

// holds reports whether an expression is true. It is not while the browser goes to another page.
func (b *Tab) holds(expression string) bool {
	b.t.Helper()
	result, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
	if failure := (*cdproto.Error)(nil); err != nil && (!errors.As(err, &failure) || failure.Code != serverError) {
		b.t.Fatalf("%s: %v\nThe page:\n%s", expression, err, b.Text())
	}
	return err == nil && result
}

// serverError is what the DevTools protocol answers if the page goes away while an expression is evaluated. It has no code of its
// own.
const serverError = -32000

// Pause waits, to see that nothing changes in the meantime.
func (b *Tab) Pause(d time.Duration) {
	b.t.Helper()
	select {
	case <-b.ctx.Done():
		b.t.Fatal(b.ctx.Err())
	case <-time.After(d):
	}
}

// Value evaluates an expression.
func Value[T any](b *Tab, expression string) T {
	b.t.Helper()
	result, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v\nThe page:\n%s", expression, err, b.Text())
	}
	return result
}

// Click clicks the enabled button with a text, when there is one, in an open dialog first.
func (b *Tab) Click(text string) {
	b.t.Helper()
	b.Until(fmt.Sprintf(`[...(document.querySelector("dialog[open]") ?? document).querySelectorAll("button")].some((b) => b.textContent === %q && !b.disabled && (b.click(), true))`, text))
}

// Fill puts a text into the field of a label, as if it was typed.
func (b *Tab) Fill(label, text string) {
	b.t.Helper()
	field := fmt.Sprintf(`[...document.querySelectorAll("label")].find((l) => l.firstChild?.textContent.startsWith(%q))?.querySelector("input, textarea, select")`, label)
	b.Until("!!" + field)
	Value[bool](b, fmt.Sprintf(`(() => { const f = %s; f.value = %q; f.dispatchEvent(new Event("input", {bubbles: true})); return f.dispatchEvent(new Event("change", {bubbles: true})); })()`, field, text))
}

// Saved clicks the button with a text, and waits until the page saves a file: its type and its size in bytes.
func (b *Tab) Saved(button, want string) {
	b.t.Helper()
	Value[bool](b, `(() => { const make = URL.createObjectURL; URL.createObjectURL = (file) => { window.saved = file.type + " " + file.size; return make.call(URL, file); }; return true; })()`)
	b.Click(button)
	b.Until(fmt.Sprintf(`(window.saved ?? "").startsWith(%q)`, want))
}

// Unfold opens the part of the page with a title.
func (b *Tab) Unfold(title string) {
	b.t.Helper()
	summary := fmt.Sprintf(`[...document.querySelectorAll("summary")].find((s) => s.textContent === %q)`, title)
	b.Until("!!" + summary)
	Value[bool](b, summary+".click() ?? true")
}

// Type presses and releases keys. Unlike press, it sends no text that a page has prevented.
func (b *Tab) Type(text string) {
	b.t.Helper()
	for _, c := range text {
		down := &input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: string(c), Text: string(c)}
		if c == '\r' {
			down.Key, down.Code, down.WindowsVirtualKeyCode = "Enter", "Enter", '\r'
		}
		up := *down
		up.Type, up.Text = input.DispatchKeyEventTypeKeyUp, ""
		for _, event := range []*input.DispatchKeyEventParams{down, &up} {
			if _, err := chromedp.Call(b.ctx, input.DispatchKeyEvent, *event); err != nil {
				b.t.Fatal(err)
			}
		}
	}
}

// selectText selects a text of a line of the editor of YAML, as a pointer would.
const selectText = `(() => {
	const text = %q, line = [...document.querySelectorAll(".cm-line")].find((l) => l.textContent.includes(text));
	if (!line) return false;
	const nodes = [], walker = document.createTreeWalker(line, NodeFilter.SHOW_TEXT);
	while (walker.nextNode()) nodes.push(walker.currentNode);
	const place = (at) => { for (const n of nodes) { if (at <= n.length) return [n, at]; at -= n.length; } };
	const from = line.textContent.indexOf(text);
	document.querySelector(".cm-content").focus();
	getSelection().setBaseAndExtent(...place(from), ...place(from + text.length));
	return getSelection().toString() === text;
})()`

// Replace selects a text in the editor of YAML, and types another one.
func (b *Tab) Replace(from, to string) {
	b.t.Helper()
	b.Until(fmt.Sprintf(selectText, from))
	b.Type(to)
	b.Until(fmt.Sprintf(`document.querySelector(".cm-content").textContent.includes(%q)`, to))
}

// Hover moves the pointer to the middle of the element of an expression.
func (b *Tab) Hover(expression string) {
	b.t.Helper()
	b.Until("!!(" + expression + ")")
	at := Value[[]float64](b, fmt.Sprintf(`(() => { const e = %s; e.scrollIntoView({block: "center"}); const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()`, expression))
	move := input.DispatchMouseEventParams{Type: input.DispatchMouseEventTypeMouseMoved, X: at[0], Y: at[1]}
	if _, err := chromedp.Call(b.ctx, input.DispatchMouseEvent, move); err != nil {
		b.t.Fatal(err)
	}
}
