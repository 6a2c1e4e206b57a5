package up

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// event is one line of what a detached keelson tells the command that started it.
type event struct {
	Step  string        `json:"step,omitempty"`  // a step begins, or with Done has ended
	Done  bool          `json:"done,omitempty"`  //
	Took  time.Duration `json:"took,omitempty"`  // of a step that has ended
	Text  string        `json:"text,omitempty"`  // what to tell the user in the end
	Error string        `json:"error,omitempty"` // why it failed
}

// reporter tells the user how far a start has come.
type reporter interface {
	report(e event)
}

// pipeReporter passes events on, one JSON object a line.
type pipeReporter struct {
	mu sync.Mutex
	w  io.Writer
}

func (r *pipeReporter) report(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = json.NewEncoder(r.w).Encode(e) // whoever does not listen any more needs no events
}

// printer writes events for people: on a terminal the steps that are under way stand in a live last line.
type printer struct {
	mu      sync.Mutex
	w       io.Writer
	live    bool
	current []running
}

type running struct {
	step  string
	began time.Time
}

// newPrinter returns a printer that has a live line if w is a terminal.
func newPrinter(w io.Writer) *printer {
	f, ok := w.(*os.File)
	return &printer{w: w, live: ok && term.IsTerminal(int(f.Fd()))}
}

const clearLine = "\r\x1b[2K"

func (p *printer) report(e event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live {
		p.printf(clearLine)
	}
	switch {
	case e.Text != "":
		p.printf("%s", e.Text)
	case e.Step != "" && !e.Done:
		p.current = append(p.current, running{step: e.Step, began: time.Now()})
	case e.Step != "":
		p.drop(e.Step)
		p.printf("  %-24s %6.2f s\n", e.Step, e.Took.Seconds())
	}
	p.refresh()
}

// refresh draws the live line again.
func (p *printer) refresh() {
	if !p.live || len(p.current) == 0 {
		return
	}
	line := ""
	for _, r := range p.current {
		line += fmt.Sprintf("  %s ... %.0f s", r.step, time.Since(r.began).Seconds())
	}
	p.printf("%s%s", clearLine, line)
}

// animate redraws the live line until done is closed, and then clears it.
func (p *printer) animate(done <-chan struct{}) {
	if !p.live {
		return
	}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			p.mu.Lock()
			p.refresh()
			p.mu.Unlock()
		case <-done:
			p.mu.Lock()
			p.printf(clearLine)
			p.current = nil
			p.mu.Unlock()
			return
		}
	}
}

func (p *printer) drop(step string) {
	for i, r := range p.current {
		if r.step == step {
			p.current = append(p.current[:i], p.current[i+1:]...)
			return
		}
	}
}

func (p *printer) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(p.w, format, args...) // progress that cannot be shown must not stop the start
}
