package plot

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

func chart() Chart {
	return Chart{
		Title: "lag & load", XLabel: "objects", YLabel: "lag",
		FormatX: func(v float64) string { return fmt.Sprintf("%g", v) },
		FormatY: func(v float64) string { return fmt.Sprintf("%g s", v) },
		XTicks:  []float64{100, 1000, 10000},
		Lines:   []string{"floor", "ours <new>"},
		Panels: []Panel{
			{Title: "first", Points: map[string][]Point{"floor": {{100, 0.1}, {10000, 10}}, "ours <new>": {{100, 1}}}},
			{Title: "last", Points: map[string][]Point{"floor": {{1000, 0.02}}}},
		},
	}
}

func TestWrite(t *testing.T) {
	var got, again strings.Builder
	if err := chart().Write(&got); err != nil {
		t.Fatal(err)
	}
	if err := chart().Write(&again); err != nil || got.String() != again.String() {
		t.Errorf("the same chart gives other bytes, %v", err)
	}
	decoder := xml.NewDecoder(strings.NewReader(got.String()))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("no XML: %v", err)
		}
	}
	// The y axis goes from 0.01 to 10, three decades on 300 pixels from 84 on; x from 4 % to 96 % of 330 pixels from 74 on.
	for _, want := range []string{
		"<title>lag &amp; load</title>", "ours &lt;new&gt;", ">0.01 s</text>", ">10 s</text>", ">10000</text>",
		`d="M87.2 284.0L390.8 84.0"`, // the floor in the first panel
		`d="M87.2 184.0"`,            // the only point of the other line
	} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, got.String())
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	for name, spoil := range map[string]func(*Chart){
		"a time of 0":    func(c *Chart) { c.Panels[0].Points["floor"][0].Y = 0 },
		"nothing at all": func(c *Chart) { c.Panels = nil },
		"too many lines": func(c *Chart) { c.Lines = make([]string, len(marks)+1) },
	} {
		c := chart()
		spoil(&c)
		if err := c.Write(io.Discard); err == nil {
			t.Errorf("%s gives no error", name)
		}
	}
}
