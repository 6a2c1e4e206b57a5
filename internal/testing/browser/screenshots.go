package browser

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// narrow is the width of a small phone, and phoneHeight its height. wide and wideHeight are those of a 4k screen.
const narrow, phoneHeight, wide, wideHeight = 360, 740, 3840, 2160

// Keep writes screenshots to the folder $KEELSON_SCREENSHOTS: in light, in dark, as on a phone, and as on a 4k screen.
func (b *Tab) Keep(name string) {
	b.t.Helper()
	folder := os.Getenv("KEELSON_SCREENSHOTS")
	if folder == "" {
		return
	}
	for _, name := range []string{name + "-light", name + "-dark", name + "-narrow", name + "-wide"} {
		b.look(name[strings.LastIndex(name, "-")+1:])
		b.capture(filepath.Join(folder, name+".png"))
	}
	b.look("")
}

// pictureWidth and pictureHeight are those of the screenshots in the documentation, pictureQuality that of WebP.
const pictureWidth, pictureHeight, pictureQuality = 1280, 800, 55

// Show writes the screenshots of a page for the documentation to the folder $KEELSON_SCREENSHOTS: in light and in dark.
func (b *Tab) Show(name string) {
	b.t.Helper()
	folder := os.Getenv("KEELSON_SCREENSHOTS")
	if folder == "" {
		return
	}
	quality := int64(pictureQuality)
	for _, look := range []string{"light", "dark"} {
		b.look(look)
		b.Resize(pictureWidth, pictureHeight)
		Value[bool](b, twoFrames)
		b.Until("window.drawn")
		result, err := chromedp.Call(b.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatWebp, Quality: &quality})
		if err != nil {
			b.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "console-"+name+"-"+look+".webp"), result.Data, 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
	b.look("")
}

// twoFrames sets drawn when the page is as it should be with its present size.
const twoFrames = `(() => { window.drawn = false; requestAnimationFrame(() => requestAnimationFrame(() => { window.drawn = true; })); return true; })()`

// look makes the page light, dark, narrow or wide: as on a phone or a 4k screen. Without a name, it is as at first.
func (b *Tab) look(name string) {
	b.t.Helper()
	scheme := name
	if name != "dark" {
		scheme = "light"
	}
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		b.t.Fatal(err)
	}
	switch name {
	case "narrow":
		b.Resize(narrow, phoneHeight)
		return
	case "wide":
		b.Resize(wide, wideHeight)
		return
	}
	if _, err := chromedp.Call(b.ctx, emulation.ClearDeviceMetricsOverride, cdp.Empty{}); err != nil {
		b.t.Fatal(err)
	}
}

// Resize makes the page as large as on another screen.
func (b *Tab) Resize(width, height int64) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *Tab) capture(file string) {
	b.t.Helper()
	image, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(file, image, 0o600); err != nil {
		b.t.Fatal(err)
	}
}
