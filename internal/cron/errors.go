package cron

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ParseError describes an invalid schedule or date and the position of the error.
type ParseError struct {
	// Text is the parsed text, truncated to a hundred bytes.
	Text string
	// Field is the invalid field, such as "minute" or "day of week". It is empty if the text as a
	// whole is invalid.
	Field string
	// Offset is the byte offset of the invalid part in the parsed text.
	Offset int
	// Part is the invalid part, truncated to a hundred bytes. It is empty if something is missing.
	Part string
	// Message describes the error and what is allowed.
	Message string
}

// Error returns a readable message, such as: "61 * * * *": minute "61": must be 0 to 59.
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

// Detail returns the message without the text, for errors that quote the text themselves, and with
// the position of the invalid part: minute "61", character 1: must be 0 to 59. The text is the one
// that was parsed.
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

// Detail returns ParseError.Detail of an error of Parse, or the message of another error. The text is the one that was parsed.
func Detail(err error, text string) string {
	if parse := (*ParseError)(nil); errors.As(err, &parse) {
		return parse.Detail(text)
	}
	return err.Error()
}

// character returns the position of the invalid part in characters, from 1.
func (e *ParseError) character(text string) int {
	return utf8.RuneCountInString(text[:min(e.Offset, len(text))]) + 1
}

// shorten truncates long text for error messages, at a character boundary.
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
