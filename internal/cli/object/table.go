package object

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
)

// Table writes rows of cells, in columns as wide as their longest cell.
type Table struct {
	out *tabwriter.Writer
	err error
}

// NewTable returns a table with a header.
func NewTable(out io.Writer, header ...any) *Table {
	t := &Table{out: tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)}
	t.Add(header...)
	return t
}

// Add adds a row. Values of objects are any text: a cell stays in its line and does not control the terminal. An empty one is "-".
func (t *Table) Add(cells ...any) {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		if texts[i] = Line(fmt.Sprint(cell)); texts[i] == "" {
			texts[i] = "-"
		}
	}
	if _, err := fmt.Fprintln(t.out, strings.Join(texts, "\t")); t.err == nil {
		t.err = err
	}
}

// Flush writes the table.
func (t *Table) Flush() error {
	if err := t.out.Flush(); t.err == nil {
		t.err = err
	}
	return t.err
}

// WriteJSON writes a value as JSON for people.
func WriteJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// Line returns a text in one line, with a replacement character for each character that cannot be printed.
func Line(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, strings.Join(strings.Fields(text), " "))
}
