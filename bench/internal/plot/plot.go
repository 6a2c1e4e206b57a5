// Package plot draws results as SVG: lines over two logarithmic axes, in panels side by side. The same results give the
// same bytes. The picture is readable on a light and on a dark page, also for people who see few colours: every line
// has a mark of its own.
package plot

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// Chart is a picture: panels with the same axes and lines.
type Chart struct {
	// Title is for those who cannot see the picture.
	Title string
	// XLabel and YLabel are what the axes of every panel show.
	XLabel, YLabel string
	// FormatX and FormatY write the numbers at the axes.
	FormatX, FormatY func(float64) string
	// XTicks are the numbers at the axis that have a line. The other axis has one at every power of ten.
	XTicks []float64
	// Lines are the names of the lines; at most 5.
	Lines  []string
	Panels []Panel
}

// Panel is one part of a chart.
type Panel struct {
	Title string
	// Points are those of each line by its name, from left to right. A line may be missing.
	Points map[string][]Point
}

// Point is where a line goes through; both numbers are more than 0.
type Point struct{ X, Y float64 }

// The sizes of everything, in pixels.
const (
	panelWidth, panelHeight = 330.0, 300.0
	left, gap, right        = 74.0, 34.0, 20.0
	top, bottom             = 84.0, 54.0
	legendStep              = 190.0
)

// style has two sets of colours. The colours of the lines are those of Okabe and Ito, some darker or lighter so that
// each stands out from both backgrounds.
const style = `
  svg { font: 12px system-ui, sans-serif }
  .page { fill: #ffffff } text { fill: #24292f } .grid { stroke: #d0d7de } .axis { stroke: #57606a }
  .line { fill: none; stroke-width: 2; stroke-linejoin: round }
  .mark { stroke-width: 2 }
  .c0 { color: #6e7781 } .c1 { color: #0072b2 } .c2 { color: #c25700 } .c3 { color: #007f5c } .c4 { color: #a8487f }
  .line, .mark { stroke: currentColor } .full { fill: currentColor } .empty { fill: #ffffff }
  @media (prefers-color-scheme: dark) {
    .page, .empty { fill: #0d1117 } text { fill: #e6edf3 } .grid { stroke: #30363d } .axis { stroke: #8b949e }
    .c0 { color: #9aa4ae } .c1 { color: #56b4e9 } .c2 { color: #f0a202 } .c3 { color: #3fcf9f } .c4 { color: #e08fbd }
  }
`

// Write draws the chart.
func (c Chart) Write(w io.Writer) error {
	if len(c.Lines) > len(marks) {
		return fmt.Errorf("draw %q: there are %d lines, and only %d kinds of marks", c.Title, len(c.Lines), len(marks))
	}
	d := &drawing{Chart: c, x: axisOver(c.XTicks...)}
	var ys []float64
	for _, panel := range c.Panels {
		for _, name := range c.Lines {
			for _, p := range panel.Points[name] {
				if !(p.X > 0 && p.Y > 0) {
					return fmt.Errorf("draw %q: %s has the point %v, %v, and a logarithmic axis has no place for it", c.Title, name, p.X, p.Y)
				}
				ys = append(ys, p.Y)
			}
		}
	}
	if len(ys) == 0 {
		return fmt.Errorf("draw %q: there is nothing to draw", c.Title)
	}
	d.y = axisOver(ys...).decades()
	d.draw()
	_, err := io.WriteString(w, d.text.String())
	return err
}

// axis is a range of numbers, as powers of ten.
type axis struct{ low, high float64 }

func axisOver(values ...float64) axis {
	a := axis{low: math.Inf(1), high: math.Inf(-1)}
	for _, v := range values {
		a.low, a.high = min(a.low, math.Log10(v)), max(a.high, math.Log10(v))
	}
	return a
}

// decades returns the range that begins and ends with a power of ten.
func (a axis) decades() axis {
	a.low, a.high = math.Floor(a.low), math.Ceil(a.high)
	if a.low == a.high {
		a.high++
	}
	return a
}

// at returns where a number is, from 0 to 1.
func (a axis) at(value float64) float64 {
	if a.high <= a.low {
		return 0.5
	}
	return (math.Log10(value) - a.low) / (a.high - a.low)
}

// drawing is a chart on its way to text.
type drawing struct {
	Chart
	x, y axis
	text strings.Builder
}

func (d *drawing) add(format string, args ...any) { fmt.Fprintf(&d.text, format+"\n", args...) }

func (d *drawing) draw() {
	panels := float64(len(d.Panels))
	width, height := left+panels*panelWidth+(panels-1)*gap+right, top+panelHeight+bottom
	d.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g" role="img">`, width, height, width, height)
	d.add("<title>%s</title>\n<style>%s</style>", escape(d.Title), style)
	d.add(`<rect class="page" width="%g" height="%g"/>`, width, height)
	d.legend(width)
	for i, panel := range d.Panels {
		d.panel(panel, left+float64(i)*(panelWidth+gap), i == 0)
	}
	d.add(`<text transform="translate(18 %g) rotate(-90)" text-anchor="middle">%s</text>`, top+panelHeight/2, escape(d.YLabel))
	d.add("</svg>")
}

// legend names the lines above the panels, in rows that fit.
func (d *drawing) legend(width float64) {
	perRow := max(1, int((width-left-right)/legendStep))
	for i, name := range d.Lines {
		x, y := left+float64(i%perRow)*legendStep, 20+float64(i/perRow)*20
		d.add(`<g class="c%d"><path class="line" d="M%g %gh24"/>%s</g>`, i, x, y, marks[i](x+12, y))
		d.add(`<text x="%g" y="%g">%s</text>`, x+30, y+4, escape(name))
	}
}

func (d *drawing) panel(panel Panel, x0 float64, isFirst bool) {
	px := func(v float64) float64 { return x0 + (0.04+0.92*d.x.at(v))*panelWidth }
	py := func(v float64) float64 { return top + (1-d.y.at(v))*panelHeight }
	d.add(`<text x="%.1f" y="%g" text-anchor="middle" font-weight="600">%s</text>`, x0+panelWidth/2, top-10, escape(panel.Title))
	for power := int(d.y.low); power <= int(d.y.high); power++ {
		value := math.Pow10(power)
		d.add(`<path class="grid" d="M%.1f %.1fh%g"/>`, x0, py(value), panelWidth)
		if isFirst {
			d.add(`<text x="%.1f" y="%.1f" text-anchor="end">%s</text>`, x0-8, py(value)+4, escape(d.FormatY(value)))
		}
	}
	for _, tick := range d.XTicks {
		d.add(`<path class="grid" d="M%.1f %gv%g"/>`, px(tick), top, panelHeight)
		d.add(`<text x="%.1f" y="%g" text-anchor="middle">%s</text>`, px(tick), top+panelHeight+18, escape(d.FormatX(tick)))
	}
	d.add(`<path class="axis" fill="none" d="M%.1f %gv%gh%g"/>`, x0, top, panelHeight, panelWidth)
	d.add(`<text x="%.1f" y="%g" text-anchor="middle">%s</text>`, x0+panelWidth/2, top+panelHeight+40, escape(d.XLabel))
	// The first line is drawn last: it is what the others are compared with.
	for i := len(d.Lines) - 1; i >= 0; i-- {
		points := panel.Points[d.Lines[i]]
		if len(points) == 0 {
			continue
		}
		var path, drawn strings.Builder
		for n, p := range points {
			fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(n, 1)], px(p.X), py(p.Y))
			drawn.WriteString(marks[i](px(p.X), py(p.Y)))
		}
		d.add(`<g class="c%d"><path class="line" d="%s"/>%s</g>`, i, path.String(), drawn.String())
	}
}

// marks draw what tells a line from the others without its colour.
var marks = []func(x, y float64) string{
	func(x, y float64) string { return shape("full", "M%.1f %.1fl4 4l-4 4l-4 -4z", x, y-4) },
	func(x, y float64) string {
		return fmt.Sprintf(`<circle class="mark full" cx="%.1f" cy="%.1f" r="3.5"/>`, x, y)
	},
	func(x, y float64) string { return shape("empty", "M%.1f %.1fh7v7h-7z", x-3.5, y-3.5) },
	func(x, y float64) string { return shape("empty", "M%.1f %.1fl4.5 8h-9z", x, y-5) },
	func(x, y float64) string {
		return fmt.Sprintf(`<circle class="mark empty" cx="%.1f" cy="%.1f" r="3.5"/>`, x, y)
	},
}

func shape(class, path string, x, y float64) string {
	return fmt.Sprintf(`<path class="mark %s" d="`+path+`"/>`, class, x, y)
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

func escape(text string) string { return escaper.Replace(text) }
