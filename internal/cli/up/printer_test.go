package up

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// start has the events of a start.
var start = []event{
	{Step: "certificates"},
	{Step: "etcd"},
	{Step: "certificates", Done: true, Took: 20 * time.Millisecond},
	{Step: "etcd", Done: true, Took: 12345 * time.Millisecond},
	{Step: "kube-apiserver"},
	{Note: "Stopping ..."},
}

func TestPlainProgress(t *testing.T) {
	var out bytes.Buffer
	p := startPrinter(&out)
	for _, e := range start {
		p.report(e)
	}
	p.stop()
	p.report(event{Text: "\nIt is up.\n", Console: "http://127.0.0.1:1/#token=secret"})
	p.stop() // stop is idempotent
	want := `  certificates               0.02 s
  etcd                      12.35 s
Stopping ...

It is up.
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// onTerminal returns a printer for a terminal of that width, without redraws.
func onTerminal(w io.Writer, columns int) *printer {
	return &printer{w: w, columns: func() int { return columns }, end: make(chan struct{})}
}

func TestLiveProgress(t *testing.T) {
	var out bytes.Buffer
	p := onTerminal(&out, 80)
	for _, e := range start {
		p.report(e)
	}
	p.stop()
	p.report(event{Text: "\nIt is up.\n", Console: "http://127.0.0.1:1/#token=secret"})
	want := []string{
		"  certificates ... 0 s",
		clearLine + "  certificates ... 0 s  etcd ... 0 s",
		clearLine + "  certificates               0.02 s\n",
		"  etcd ... 0 s",
		clearLine + "  etcd                      12.35 s\n",
		"  kube-apiserver ... 0 s",
		clearLine + clearLine + "Stopping ...\n",
		"  kube-apiserver ... 0 s",
		clearLine,
		"\nIt is up.\n",
		"\nThis URL opens the console once, within an hour:\n\n  http://127.0.0.1:1/#token=secret\n",
	}
	if diff := cmp.Diff(strings.Join(want, ""), out.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// A line that fills the terminal would wrap, and could not be cleared.
func TestLiveLineFits(t *testing.T) {
	for _, columns := range []int{1, 2, 10, 23, 24, 200} {
		var out bytes.Buffer
		p := onTerminal(&out, columns)
		p.report(event{Step: "certificates"})
		if line, full := out.String(), "  certificates ... 0 s"; line != full[:min(columns-1, len(full))] {
			t.Errorf("%d columns: %q", columns, line)
		}
	}
}

func TestRelay(t *testing.T) {
	for _, test := range []struct {
		name  string
		pipe  string
		ready bool
		err   string
		shown []event
	}{
		{
			name:  "success; later events are not relayed",
			pipe:  `{"step":"etcd"}` + "\n" + `{"step":"etcd","done":true,"took":5}` + "\n" + `{"text":"up"}` + "\n" + `{"error":"later"}` + "\n",
			ready: true,
			shown: []event{{Step: "etcd"}, {Step: "etcd", Done: true, Took: 5}, {Text: "up"}},
		},
		{
			name:  "it fails",
			pipe:  `{"step":"etcd"}` + "\n" + `{"error":"no room"}` + "\n",
			err:   "no room",
			shown: []event{{Step: "etcd"}},
		},
		{name: "it dies silently"},
		{name: "it dies in the middle of a message", pipe: `{"step":"et`},
		{name: "it is interrupted", pipe: `{"note":"Stopping ..."}` + "\n", shown: []event{{Note: "Stopping ..."}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var shown recorder
			ready, err := relay(strings.NewReader(test.pipe), &shown)
			if ready != test.ready || (err == nil) != (test.err == "") || (err != nil && err.Error() != test.err) {
				t.Errorf("got %t and error %v, want %t and %q", ready, err, test.ready, test.err)
			}
			if diff := cmp.Diff(test.shown, []event(shown)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// Events of the background process arrive unchanged.
func TestPipeReporter(t *testing.T) {
	r, w := io.Pipe()
	go func() {
		p := &pipeReporter{w: w}
		for _, e := range start {
			p.report(e)
		}
		step(p, "definitions")()
		_ = w.Close() // an in-memory pipe never fails
	}()
	var got recorder
	if ready, err := relay(r, &got); ready || err != nil {
		t.Errorf("got %t, %v", ready, err)
	}
	last := got[len(got)-1]
	if last.Took <= 0 {
		t.Errorf("the last step took %s", last.Took)
	}
	last.Took = 0
	want := append(start[:len(start):len(start)], event{Step: "definitions"}, event{Step: "definitions", Done: true})
	if diff := cmp.Diff(want, append([]event(got[:len(got)-1]), last)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// A reporter without a reader does not fail.
func TestReportersIgnoreLostListeners(t *testing.T) {
	(&pipeReporter{w: broken{}}).report(event{Text: "up"})
	startPrinter(broken{}).report(event{Text: "up"})
}

type recorder []event

func (r *recorder) report(e event) { *r = append(*r, e) }

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("closed pipe") }
