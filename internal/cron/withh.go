package cron

import "strings"

// WithH returns the text of a schedule with H instead of its minute; false if the minute is not a single number.
func WithH(text string) (string, bool) {
	if fields, ok := nicknames[strings.TrimFunc(text, isSpace)]; ok {
		text = fields
	}
	words := strings.FieldsFunc(text, isSpace)
	at := len(words) - 5 // after the seconds, if there are any
	if at != 0 && at != 1 || strings.Trim(words[at], "0123456789") != "" {
		return "", false
	}
	words[at] = "H"
	return strings.Join(words, " "), true
}
