package up

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// printer writes events for people. On a terminal, the last line shows the running steps live.
type printer struct {
	w        io.Writer
	columns  func() int // of the terminal; nil if there is none, and thus no live line
	end      chan struct{}
	animated sync.WaitGroup

	mu      sync.Mutex
	current []running // steps in progress
	drawn   bool      // the cursor is in the live line
	stopped bool
}

// running is a step in progress.
type running struct {
	step  string
	began time.Time
}

// clearLine moves the cursor to the beginning of the line and clears it.
const clearLine = "\r\x1b[2K"

// startPrinter returns a printer with a live line if w is a terminal. The caller must stop it.
func startPrinter(w io.Writer) *printer {
	p := &printer{w: w, columns: columnsOf(w), end: make(chan struct{})}
	if p.columns != nil {
		p.animated.Go(p.animate)
	}
	return p
}

// columnsOf returns a function for the width of the terminal w; nil if w is not a terminal that can
// clear a line.
func columnsOf(w io.Writer) func() int {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return func() int {
		columns, _, err := term.GetSize(int(f.Fd()))
		if err != nil || columns <= 0 { // some terminals do not report their size
			return 80
		}
		return columns
	}
}

// stop removes the live line for good; later events are written plainly.
func (p *printer) stop() {
	p.mu.Lock()
	if p.stopped {
		p.mu.Unlock()
		return
	}
	p.clear()
	p.stopped = true
	p.mu.Unlock()
	close(p.end)
	p.animated.Wait()
}

// report implements reporter.
func (p *printer) report(e event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	switch {
	case e.Text != "":
		p.printf("%s", e.Text)
		if e.Console != "" && p.columns != nil {
			p.printf("\nThis URL opens the console once, within an hour:\n\n  %s\n", e.Console)
		}
	case e.Note != "":
		if p.columns != nil {
			p.printf(clearLine) // the terminal has echoed ^C or other input
		}
		p.printf("%s\n", e.Note)
	case e.Step != "" && !e.Done:
		p.current = append(p.current, running{step: e.Step, began: time.Now()})
	case e.Step != "":
		p.current = slices.DeleteFunc(p.current, func(r running) bool { return r.step == e.Step })
		p.printf("  %-24s %6.2f s\n", e.Step, e.Took.Seconds())
	}
	p.draw()
}

// animate redraws the live line with its seconds until the printer stops.
func (p *printer) animate() {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-p.end:
			return
		case <-ticker.C:
			p.mu.Lock()
			p.clear()
			p.draw()
			p.mu.Unlock()
		}
	}
}

// clear clears the live line, if there is one.
func (p *printer) clear() {
	if p.drawn {
		p.printf(clearLine)
		p.drawn = false
	}
}

// draw writes the live line.
func (p *printer) draw() {
	if p.columns == nil || p.stopped || len(p.current) == 0 {
		return
	}
	var line strings.Builder
	for _, r := range p.current {
		fmt.Fprintf(&line, "  %s ... %.0f s", r.step, time.Since(r.began).Seconds())
	}
	// A line that fills the last column, or wraps, could not be cleared.
	text := line.String()
	p.printf("%s", text[:min(len(text), max(p.columns()-1, 0))])
	p.drawn = true
}

func (p *printer) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(p.w, format, args...) // a failed write must not stop the start
}
