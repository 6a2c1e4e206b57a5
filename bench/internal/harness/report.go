package harness

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Target is a limit for the median over the rounds of a statistic of a figure. It is the greatest value, or the least if AtLeast
// is set.
type Target struct {
	Name       string
	Limit      float64
	AtLeast    bool
	Contestant string
	Size       int
	Figure     string
	Stat       Stat
	// Over turns the figure into the ratio to another contestant, Above into the difference.
	Over, Above string
	Unit        Unit // not of ratios
	Note        string
	Value       float64 // that was measured
}

// Unit is a unit of targets; its figures are in seconds or bytes.
type Unit string

// The units.
const (
	MS Unit = " ms"
	S  Unit = " s"
	MB Unit = " MB"
)

var scales = map[Unit]float64{"": 1, MS: 1e3, S: 1, MB: 1e-6}

// Judge adds targets to the report, except those for which nothing was measured.
func (r *Run) Judge(targets ...Target) {
	for _, t := range targets {
		median := func(contestant string) float64 {
			return r.Samples.Of(contestant, t.Size).Median(t.Figure, t.Stat) * scales[t.Unit]
		}
		t.Value = median(t.Contestant)
		measured := t.Value > 0
		switch {
		case t.Over != "":
			ratios := r.Samples.Ratios(t.Contestant, t.Over, t.Size, t.Figure, t.Stat)
			measured = ratios.Median > 0
			t.Unit, t.Value, t.Note = "×", ratios.Median, fmt.Sprintf("rounds from %.2f to %.2f", ratios.Min, ratios.Max)
		case t.Above != "":
			least := median(t.Above)
			measured = measured && least > 0
			t.Note = fmt.Sprintf("%s%s, and %s %s%s", number(t.Value), t.Unit, t.Above, number(least), t.Unit)
			t.Value -= least
		}
		if measured {
			r.Targets = append(r.Targets, t)
		}
	}
}

func targetTable(targets []Target) string {
	var rows [][]string
	for _, t := range targets {
		relation, verdict := "≤", "PASS"
		if t.AtLeast {
			relation = "≥"
		}
		if t.Value != t.Limit && t.AtLeast != (t.Value > t.Limit) {
			verdict = "MISS"
		}
		rows = append(rows, []string{t.Name, fmt.Sprintf("%s %g%s", relation, t.Limit, t.Unit), number(t.Value) + string(t.Unit), verdict, t.Note})
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
	r.Printf("\n%s", table(header, rows))
}

// table returns markdown whose columns are also aligned as plain text. The first column is text, the others are numbers.
func table(header []string, rows [][]string) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 1, ' ', 0)
	rule := strings.Split("---"+strings.Repeat(" ---:", len(header)-1), " ")
	for _, row := range append([][]string{header, rule}, rows...) {
		fmt.Fprintf(w, "| %s\t|\n", strings.Join(row, "\t| "))
	}
	_ = w.Flush() // to memory
	return text.String()
}

// number formats a number with at least three significant digits.
func number(x float64) string {
	return strconv.FormatFloat(x, 'f', max(0, 3-int(math.Log10(math.Abs(x)+1))), 64)
}

// Milliseconds formats seconds.
func Milliseconds(s float64) string { return number(1000*s) + " ms" }

// Seconds formats seconds.
func Seconds(s float64) string { return fmt.Sprintf("%.2f s", s) }

// Megabytes formats bytes as megabytes of 1000 × 1000 bytes.
func Megabytes(bytes float64) string { return fmt.Sprintf("%.1f MB", bytes/1e6) }

// Ratio formats a factor.
func Ratio(x float64) string { return fmt.Sprintf("%.2f×", x) }

// BurstColumns are those of the figures of MeasureBurst, with ratios to two contestants.
func BurstColumns(floor, ours string) []Column {
	return append(Distribution("seen", Milliseconds), []Column{
		{Header: "× " + floor, Figure: "seen", Stat: Last, Over: floor},
		{Header: "p50 × " + ours, Figure: "seen", Stat: P50, Over: ours},
		{Header: "last × " + ours, Figure: "seen", Stat: Last, Over: ours},
		{Header: "steady", Figure: "steady", Stat: Last, Format: Seconds},
		{Header: "processor", Figure: "processor", Stat: Last, Format: Seconds},
		{Header: "× " + ours, Figure: "processor", Stat: Last, Over: ours},
		{Header: "memory (PSS)", Figure: "memory", Stat: Last, Format: Megabytes},
		{Header: "× " + ours, Figure: "memory", Stat: Last, Over: ours},
	}...)
}

// BurstTable adds the table of a size with the number of writes, and lists them.
func (r *Run) BurstTable(size int, contestants []string, columns ...Column) {
	columns = append(columns, Column{Header: "writes", Figure: "writes", Stat: Last, Format: func(n float64) string { return fmt.Sprintf("%.2f", n) }})
	r.SampleTable(size, contestants, columns...)
	r.Printf("\nWrites for each, events included:\n\n")
	for _, contestant := range contestants {
		if list := r.Samples.Of(contestant, size).Writes(); list != "" {
			r.Printf("- %s: %s\n", contestant, list)
		}
	}
}

// Distribution returns columns for a figure with a value for each object.
func Distribution(figure string, format func(float64) string) []Column {
	return []Column{{"first", figure, First, format, ""}, {"p50", figure, P50, format, ""}, {"p99", figure, P99, format, ""}, {"last", figure, Last, format, ""}}
}
