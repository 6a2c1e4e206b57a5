package cron

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// ParseError says what is wrong with a text and where.
type ParseError struct {
	// Text is what was parsed, cut off after a hundred bytes.
	Text string
	// Field names the part that is wrong, such as "minute" or "day of week". It is empty if the
	// text as a whole is wrong.
	Field string
	// Offset is where the wrong part begins in the text that was parsed, in bytes.
	Offset int
	// Part is the wrong part, cut off after a hundred bytes. It is empty if something is missing.
	Part string
	// Message says what is allowed instead.
	Message string
}

// Error returns a sentence for a person, such as: "61 * * * *": minute "61": must be 0 to 59.
func (e *ParseError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q: ", e.Text)
	if e.Field != "" {
		b.WriteString(e.Field)
		if e.Part != "" {
			fmt.Fprintf(&b, " %q", e.Part)
		}
		b.WriteString(": ")
	}
	b.WriteString(e.Message)
	return b.String()
}

// Detail returns the same without the text, for a message that quotes the text itself, and says at which character of it
// the wrong part begins: minute "61", character 1: must be 0 to 59. The text is what was parsed.
func (e *ParseError) Detail(text string) string {
	var b strings.Builder
	switch where := e.character(text); {
	case e.Part == "":
		b.WriteString(e.Field)
	case e.Field == "":
		fmt.Fprintf(&b, "%q, character %d", e.Part, where)
	default:
		fmt.Fprintf(&b, "%s %q, character %d", e.Field, e.Part, where)
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	b.WriteString(e.Message)
	return b.String()
}

// character returns the place of the wrong part as people count: characters, from 1.
func (e *ParseError) character(text string) int {
	return utf8.RuneCountInString(text[:min(e.Offset, len(text))]) + 1
}

// shorten keeps error messages readable, whatever came in. It does not cut through a character.
func shorten(text string) string {
	end := 100
	if len(text) <= end {
		return text
	}
	for range utf8.UTFMax - 1 {
		if !utf8.RuneStart(text[end]) {
			end--
		}
	}
	return text[:end] + "..."
}
