package harness

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Target is a figure with its limit.
type Target struct {
	Name string `json:"name"`
	// Relation of the value to the limit: "≤", "<" or "≥".
	Relation string  `json:"relation"`
	Limit    float64 `json:"limit"`
	Value    float64 `json:"value"`
	Unit     string  `json:"unit,omitempty"` // such as " ms"
	Note     string  `json:"note,omitempty"`
}

// Met reports whether the target was reached.
func (t Target) Met() bool {
	switch t.Relation {
	case "<":
		return t.Value < t.Limit
	case "≥":
		return t.Value >= t.Limit
	}
	return t.Value <= t.Limit
}

// Target adds a target.
func (r *Run) Target(name, relation string, limit, value float64, unit, note string) {
	r.Targets = append(r.Targets, Target{Name: name, Relation: relation, Limit: limit, Value: value, Unit: unit, Note: note})
}

// RatioTarget adds a target for the ratios of two contestants, unless nothing was measured.
func (r *Run) RatioTarget(name, relation string, limit float64, ratios Spread) {
	if ratios.Median > 0 {
		r.Target(name, relation, limit, ratios.Median, "×", fmt.Sprintf("rounds from %.2f to %.2f", ratios.Min, ratios.Max))
	}
}

func (t Target) verdict() string {
	if t.Met() {
		return "PASS"
	}
	return "MISS"
}

func targetTable(targets []Target) string {
	var rows [][]string
	for _, t := range targets {
		rows = append(rows, []string{t.Name, fmt.Sprintf("%s %g%s", t.Relation, t.Limit, t.Unit), fmt.Sprintf("%.4g%s", t.Value, t.Unit), t.verdict(), t.Note})
	}
	return table([]string{"target", "limit", "measured", "verdict", ""}, rows)
}

// Column is a column of a table of samples: the median over the rounds of a statistic of a figure.
type Column struct {
	Header string
	Figure string
	Stat   Stat
	// Format formats it. It is not used if Over is set.
	Format func(float64) string
	// Over turns the column into the median of the ratios to another contestant.
	Over string
}

// SampleTable adds a table with a row for each contestant that has samples of a size. A cell without a value is empty.
func (r *Run) SampleTable(size int, contestants []string, columns ...Column) {
	header := []string{""}
	for _, c := range columns {
		header = append(header, c.Header)
	}
	var rows [][]string
	for _, contestant := range contestants {
		of := r.Samples.Of(contestant, size)
		if len(of) == 0 {
			continue
		}
		row := []string{contestant}
		for _, c := range columns {
			cell, format := "", c.Format
			value, has := of.Median(c.Figure, c.Stat), len(of.Pool(c.Figure)) > 0
			if c.Over != "" {
				value, format = r.Samples.Ratios(contestant, c.Over, size, c.Figure, c.Stat).Median, Ratio
				has = value > 0
			}
			if has {
				cell = format(value)
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	r.Table(header, rows)
}

// Table adds a table. Its first column is text, the others are numbers.
func (r *Run) Table(header []string, rows [][]string) { r.Printf("\n%s", table(header, rows)) }

// table returns markdown whose columns are also aligned as plain text.
func table(header []string, rows [][]string) string {
	rule := make([]string, len(header))
	for i := range header {
		width := 2
		for _, row := range append([][]string{header}, rows...) {
			width = max(width, utf8.RuneCountInString(row[i]))
		}
		rule[i] = strings.Repeat("-", width)
		if i > 0 {
			rule[i] = strings.Repeat("-", width-1) + ":"
		}
	}
	var text strings.Builder
	for _, row := range append([][]string{header, rule}, rows...) {
		for i := range header {
			padding := strings.Repeat(" ", len(rule[i])-utf8.RuneCountInString(row[i]))
			if i == 0 {
				text.WriteString("| " + row[i] + padding + " |")
			} else {
				text.WriteString(" " + padding + row[i] + " |")
			}
		}
		text.WriteByte('\n')
	}
	return text.String()
}

// Milliseconds formats seconds with three significant digits.
func Milliseconds(s float64) string {
	switch ms := 1000 * s; {
	case ms >= 100:
		return fmt.Sprintf("%.0f ms", ms)
	case ms >= 10:
		return fmt.Sprintf("%.1f ms", ms)
	default:
		return fmt.Sprintf("%.2f ms", ms)
	}
}

// Seconds formats seconds.
func Seconds(s float64) string { return fmt.Sprintf("%.2f s", s) }

// Megabytes formats bytes as megabytes of 1000 × 1000 bytes.
func Megabytes(bytes float64) string { return fmt.Sprintf("%.1f MB", bytes/1e6) }

// Ratio formats a factor.
func Ratio(x float64) string { return fmt.Sprintf("%.2f×", x) }

// Number formats a number of things.
func Number(n float64) string { return fmt.Sprintf("%g", n) }

// Percent formats a part of 1.
func Percent(x float64) string { return fmt.Sprintf("%.2f %%", 100*x) }

// Distribution returns columns for a figure with a value for each object.
func Distribution(figure string, format func(float64) string) []Column {
	return []Column{{"first", figure, First, format, ""}, {"p50", figure, P50, format, ""}, {"p99", figure, P99, format, ""}, {"last", figure, Last, format, ""}}
}

// MemoryColumns are the columns for the figures that SetMemory sets.
var MemoryColumns = []Column{
	{"RSS", "RSS", Last, Megabytes, ""}, {"PSS", "PSS", Last, Megabytes, ""},
	{"files of RSS", "file", Last, Megabytes, ""}, {"peak", "peak", Last, Megabytes, ""},
}

// IdleColumns are the columns for the figures that Idle sets.
var IdleColumns = append([]Column{
	{"CPU", "busy", Last, Percent, ""}, {"live heap", "live heap", Last, Megabytes, ""},
	{"stacks", "stacks", Last, Megabytes, ""}, {"goroutines", "goroutines", Last, Number, ""},
}, MemoryColumns...)
