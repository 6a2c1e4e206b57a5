package measure

import (
	"fmt"
	"strings"
)

// Target is what a benchmark is to reach, and what it did.
type Target struct {
	// Name says what was measured.
	Name string `json:"name"`
	// Limit is what the value may be at most, or, if Below is set, must be less than, or, if AtLeast is, must reach.
	Limit   float64 `json:"limit"`
	Below   bool    `json:"below,omitempty"`
	AtLeast bool    `json:"atLeast,omitempty"`
	// Value is what was measured, in the unit of Limit.
	Value float64 `json:"value"`
	// Unit follows both in the text, such as " ms".
	Unit string `json:"unit,omitempty"`
	// Note is what else there is to know about the value.
	Note string `json:"note,omitempty"`
}

// Met reports whether the target was reached.
func (t Target) Met() bool {
	switch {
	case t.Below:
		return t.Value < t.Limit
	case t.AtLeast:
		return t.Value >= t.Limit
	}
	return t.Value <= t.Limit
}

// WriteTargets writes a table of targets, and returns how many were missed.
func WriteTargets(text *strings.Builder, targets []Target) (missed int) {
	table := NewTable("target", "limit", "measured", "verdict", "")
	for _, t := range targets {
		relation, verdict := "≤", "PASS"
		switch {
		case t.Below:
			relation = "<"
		case t.AtLeast:
			relation = "≥"
		}
		if !t.Met() {
			verdict = "MISS"
			missed++
		}
		table.Add(t.Name, fmt.Sprintf("%s %g%s", relation, t.Limit, t.Unit), fmt.Sprintf("%.4g%s", t.Value, t.Unit), verdict, t.Note)
	}
	table.Write(text)
	return missed
}
