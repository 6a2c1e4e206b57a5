package console_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/keelson-dev/keelson/internal/testing/browser"
)

// firstView notes when the page has its first view, with the objects of the API: in milliseconds since the navigation began.
const firstView = `(() => {
	const seen = () => document.body?.innerText.includes("SecretMissing") && document.body.innerText.includes("1 Machine");
	const note = () => (seen() ? (window.firstView = performance.now()) : requestAnimationFrame(note));
	note();
})()`

// BenchmarkFirstView opens the overview as one who has been here before, and reports the median times until the browser paints
// something, and until it shows the objects of the API. It only measures: the goal is 300 ms on a host at rest.
//
//	go run ./internal/testing/env/run -- go test -run '^$' -bench FirstView -benchtime 20x ./internal/console
func BenchmarkFirstView(b *testing.B) {
	w := newWorld(b)
	c := serve(b, w.config)
	tab := browser.New(b)
	tab.Open(strings.Replace(c.URL(), "/#", "/?namespace="+w.namespace+"#", 1))
	tab.Sees("SecretMissing")
	tab.Before(firstView)
	var paints, views []float64
	for b.Loop() {
		tab.Do(chromedp.Navigate(c.Address() + "/?namespace=" + w.namespace))
		tab.Until("window.firstView > 0")
		views = append(views, browser.Value[float64](tab, "window.firstView"))
		paints = append(paints, browser.Value[float64](tab, `performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0`))
	}
	median := func(all []float64) float64 { slices.Sort(all); return all[len(all)/2] }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(paints), "ms/first-paint")
	b.ReportMetric(median(views), "ms/first-view")
}
