package up

import (
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"
)

// event is a message from a detached keelson to the command that started it.
type event struct {
	Step string        `json:"step,omitempty"` // a step begins, or with Done ends
	Done bool          `json:"done,omitempty"` //
	Took time.Duration `json:"took,omitempty"` // duration of a completed step
	Note string        `json:"note,omitempty"` // a line to show in between
	Text string        `json:"text,omitempty"` // message to the user once everything is ready
	// Console is a URL that opens the console. It is a secret, so it is for a terminal only.
	Console string `json:"console,omitempty"`
	Error   string `json:"error,omitempty"` // reason of the failure
}

// reporter shows the progress of a start to the user.
type reporter interface {
	report(e event)
}

// pipeReporter forwards events, one JSON object per line.
type pipeReporter struct {
	mu sync.Mutex
	w  io.Writer
}

func (r *pipeReporter) report(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = json.NewEncoder(r.w).Encode(e) // a reader that is gone needs no events
}

// relay shows events until the final text of a start (true), an error, or the end of the background
// process.
func relay(events io.Reader, r reporter) (ready bool, err error) {
	decoder := json.NewDecoder(events)
	for {
		var e event
		if err := decoder.Decode(&e); err != nil {
			return false, nil // the process has ended silently; the caller knows its exit status
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

// step reports the begin of a step; the returned function reports its end.
func step(r reporter, name string) (done func()) {
	began := time.Now()
	r.report(event{Step: name})
	return func() { r.report(event{Step: name, Done: true, Took: time.Since(began)}) }
}
