package cron

import (
	"fmt"
	"math/bits"
	"strings"
	"time"
)

// Limits of a schedule. Six fields with every value written out fit in.
const (
	// MaxLength is the number of bytes that a schedule may have.
	MaxLength = 1024
	// MaxEntries is the number of entries that a field may have, separated by commas.
	MaxEntries = 60
)

var nicknames = map[string]string{
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
	"@monthly":  "0 0 1 * *",
	"@weekly":   "0 0 * * 0",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@hourly":   "0 * * * *",
}

// Parse reads a schedule: five fields, six with leading seconds, a nickname such as @daily, or
// "@every" with a duration of whole seconds. The key, namespace/name of the object, is what the
// values of H depend on. Errors are of the type *[ParseError].
func Parse(text, key string) (*Schedule, error) {
	fail := func(part token, format string, args ...any) (*Schedule, error) {
		return nil, &ParseError{Text: shorten(text), Offset: part.offset, Part: shorten(part.text), Message: fmt.Sprintf(format, args...)}
	}
	if len(text) > MaxLength {
		return fail(token{"", MaxLength}, "has %d bytes; must have at most %d", len(text), MaxLength)
	}
	words := split(text)
	if len(words) == 0 {
		return fail(token{}, "is empty; must be five fields, six with leading seconds, or @daily and the like")
	}
	switch first := words[0]; {
	case strings.HasPrefix(first.text, "TZ=") || strings.HasPrefix(first.text, "CRON_TZ="):
		return fail(first, "the time zone does not belong in the schedule; set spec.timeZone to %q", shorten(first.text[strings.Index(first.text, "=")+1:]))
	case first.text == "@every":
		return parseEvery(text, words)
	case first.text == "@reboot":
		return fail(first, "@reboot is not supported, because nothing boots; ask for a run on demand instead")
	case first.text[0] == '@':
		fields, ok := nicknames[first.text]
		if !ok || len(words) > 1 {
			return fail(first, "must be @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly or @every DURATION, and nothing else")
		}
		words = split(fields)
	}
	return parseFields(text, key, words)
}

// parseFields reads five or six fields; without seconds a schedule runs at second zero.
func parseFields(text, key string, words []token) (*Schedule, error) {
	if n := len(words); n != 5 && n != 6 {
		last := words[n-1]
		return nil, &ParseError{Text: shorten(text), Offset: last.offset, Message: fmt.Sprintf(
			"has %d fields; must have 5 (minute, hour, day of month, month, day of week) or 6 (second before them)", n)}
	}
	sets, stars := [fieldCount]uint64{second: 1}, [fieldCount]bool{}
	for i, word := range words {
		f := i + fieldCount - len(words)
		p := fieldParser{&fieldRules[f], text, key}
		var err error
		if sets[f], stars[f], err = p.field(word); err != nil {
			return nil, err
		}
	}
	s := &Schedule{
		text:     strings.TrimFunc(text, isSpace),
		second:   sets[second],
		minute:   sets[minute],
		hour:     uint32(sets[hour]),
		dom:      uint32(sets[dayOfMonth]),
		month:    uint16(sets[month]),
		dow:      uint8(sets[dayOfWeek]),
		eitherOf: !stars[dayOfMonth] && !stars[dayOfWeek],
		wildcard: stars[minute] || stars[hour],
	}
	s.perDay = int64(bits.OnesCount32(s.hour)) * int64(bits.OnesCount64(s.minute)) * int64(bits.OnesCount64(s.second))
	s.never = !s.hasDays()
	return s, nil
}

// parseEvery reads the duration after @every.
func parseEvery(text string, words []token) (*Schedule, error) {
	fail := func(part token) (*Schedule, error) {
		return nil, &ParseError{Text: shorten(text), Field: "duration", Offset: part.offset, Part: shorten(part.text),
			Message: `must be one duration of whole seconds, 1s at least, such as "90s" or "1h30m"`}
	}
	if len(words) != 2 {
		return fail(token{"", words[0].offset + len(words[0].text)})
	}
	d, err := time.ParseDuration(words[1].text)
	if err != nil || d < time.Second || d%time.Second != 0 {
		return fail(words[1])
	}
	return &Schedule{text: strings.TrimFunc(text, isSpace), every: int64(d / time.Second)}, nil
}

func isSpace(c rune) bool {
	return c == ' ' || c == '\t' || c == '\n' || c == '\r'
}

// split returns the words of a text.
func split(text string) []token {
	var words []token
	start := -1
	for i, c := range text {
		switch {
		case isSpace(c) && start >= 0:
			words = append(words, token{text[start:i], start})
			start = -1
		case !isSpace(c) && start < 0:
			start = i
		}
	}
	if start >= 0 {
		words = append(words, token{text[start:], start})
	}
	return words
}
