package up

import (
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"
)

// event is one line of what a detached keelson tells the command that started it.
type event struct {
	Step  string        `json:"step,omitempty"`  // a step begins, or with Done has ended
	Done  bool          `json:"done,omitempty"`  //
	Took  time.Duration `json:"took,omitempty"`  // of a step that has ended
	Note  string        `json:"note,omitempty"`  // a line to show in between
	Text  string        `json:"text,omitempty"`  // what to tell the user when all is up
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

// relay shows events until the text that ends a start (true), an error, or the end of the background process.
func relay(events io.Reader, r reporter) (ready bool, err error) {
	decoder := json.NewDecoder(events)
	for {
		var e event
		if err := decoder.Decode(&e); err != nil {
			return false, nil // the process has ended without a word; the caller knows how
		}
		if e.Error != "" {
			return false, errors.New(e.Error)
		}
		r.report(e)
		if e.Text != "" {
			return true, nil
		}
	}
}

// step reports that a step begins; what it returns reports that it is done.
func step(r reporter, name string) (done func()) {
	began := time.Now()
	r.report(event{Step: name})
	return func() { r.report(event{Step: name, Done: true, Took: time.Since(began)}) }
}
