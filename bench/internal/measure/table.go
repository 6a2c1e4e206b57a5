package measure

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Table is a table of results. Its first column is text, the others are numbers.
type Table struct {
	header []string
	rows   [][]string
}

// NewTable returns a table without rows.
func NewTable(header ...string) *Table { return &Table{header: header} }

// Add adds a row. Cells that are missing at its end are empty.
func (t *Table) Add(cells ...string) {
	t.rows = append(t.rows, append(cells, make([]string, max(0, len(t.header)-len(cells)))...))
}

// Write writes the table as markdown, with columns that are aligned as plain text, too.
func (t *Table) Write(text *strings.Builder) {
	widths := make([]int, len(t.header))
	for _, row := range append([][]string{t.header}, t.rows...) {
		for i := range widths {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]), 2)
		}
	}
	rule := make([]string, len(widths))
	for i, width := range widths {
		rule[i] = strings.Repeat("-", width-1) + ":"
		if i == 0 {
			rule[i] = strings.Repeat("-", width)
		}
	}
	for _, row := range append([][]string{t.header, rule}, t.rows...) {
		for i, width := range widths {
			padding := strings.Repeat(" ", width-utf8.RuneCountInString(row[i]))
			if i == 0 {
				text.WriteString("| " + row[i] + padding + " |")
			} else {
				text.WriteString(" " + padding + row[i] + " |")
			}
		}
		text.WriteByte('\n')
	}
}

// Milliseconds formats a duration with as many digits as tell anything.
func Milliseconds(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case ms >= 100:
		return fmt.Sprintf("%.0f ms", ms)
	case ms >= 10:
		return fmt.Sprintf("%.1f ms", ms)
	default:
		return fmt.Sprintf("%.2f ms", ms)
	}
}

// Seconds formats a duration as seconds.
func Seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// Megabytes formats bytes as megabytes of 1000 × 1000 bytes.
func Megabytes(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }

// Ratio formats how many times one is the other.
func Ratio(x float64) string { return fmt.Sprintf("%.2f×", x) }
