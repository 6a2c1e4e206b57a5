package cron

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Limits of a schedule. They allow six fields with every value written out.
const (
	// MaxLength is the maximum length of a schedule in bytes.
	MaxLength = 1024
	// MaxEntries is the maximum number of comma-separated entries in a field.
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

// Parse parses a schedule: five fields, six with leading seconds, a nickname such as @daily, or
// "@every" with a duration of whole seconds. The key, namespace/name of the object, determines the
// values of H. Errors are of type *[ParseError].
func Parse(text, key string) (*Schedule, error) {
	fail := func(part token, format string, args ...any) (*Schedule, error) {
		return nil, &ParseError{Text: shorten(text), Offset: part.offset, Part: shorten(part.text), Message: fmt.Sprintf(format, args...)}
	}
	if len(text) > MaxLength {
		return fail(token{"", MaxLength}, "has %d bytes; must have at most %d", len(text), MaxLength)
	}
	words := split(text)
	if len(words) == 0 {
		return fail(token{}, "is empty; must be five fields, six fields with leading seconds, or a nickname such as @daily")
	}
	switch first := words[0]; {
	case strings.HasPrefix(first.text, "TZ=") || strings.HasPrefix(first.text, "CRON_TZ="):
		return fail(first, "the time zone does not belong in the schedule; set spec.timeZone to %q", shorten(first.text[strings.Index(first.text, "=")+1:]))
	case first.text == "@every":
		return parseEvery(text, words)
	case first.text == "@reboot":
		return fail(first, "@reboot is not supported; request a run on demand instead")
	case first.text[0] == '@':
		fields, ok := nicknames[first.text]
		if !ok || len(words) > 1 {
			return fail(first, "must be one of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly and @every DURATION, without other fields")
		}
		words = split(fields)
	}
	return parseFields(text, key, words)
}

// parseFields parses five or six fields. Without seconds, a schedule runs at second zero.
func parseFields(text, key string, words []token) (*Schedule, error) {
	if n := len(words); n != 5 && n != 6 {
		last := words[n-1]
		return nil, &ParseError{Text: shorten(text), Offset: last.offset, Message: fmt.Sprintf(
			"has %d fields; must have 5 (minute, hour, day of month, month, day of week) or 6 (second before them)", n)}
	}
	sets, stars, days := [fieldCount]uint64{second: 1}, [fieldCount]bool{}, relativeDays{}
	for i, word := range words {
		f := i + fieldCount - len(words)
		p := fieldParser{&fieldRules[f], text, key, &days}
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
		relative: days,
		eitherOf: !stars[dayOfMonth] && !stars[dayOfWeek],
		wildcard: stars[minute] || stars[hour],
	}
	s.perDay = int64(bits.OnesCount32(s.hour)) * int64(bits.OnesCount64(s.minute)) * int64(bits.OnesCount64(s.second))
	s.never = !s.hasDays()
	return s, nil
}

// parseEvery parses the duration after @every.
func parseEvery(text string, words []token) (*Schedule, error) {
	fail := func(part token) (*Schedule, error) {
		return nil, &ParseError{Text: shorten(text), Field: "duration", Offset: part.offset, Part: shorten(part.text),
			Message: `must be a single duration of whole seconds, at least 1s, such as "90s" or "1h30m"`}
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

// The fields in order. Their names are salts of H and must never change.
const (
	second = iota
	minute
	hour
	dayOfMonth
	month
	dayOfWeek
	fieldCount
)

// fieldRule is the allowed content of a field.
type fieldRule struct {
	name     string
	min, max int
	// last is where "*" and "5/15" end: max, except that Sunday counts once.
	last int
	// hashLast is where H ends. The 28th is the last day that every month has.
	hashLast int
	// names are the names of the values from min on.
	names []string
}

var fieldRules = [fieldCount]fieldRule{
	second:     {name: "second", max: 59, last: 59, hashLast: 59},
	minute:     {name: "minute", max: 59, last: 59, hashLast: 59},
	hour:       {name: "hour", max: 23, last: 23, hashLast: 23},
	dayOfMonth: {name: "day of month", min: 1, max: 31, last: 31, hashLast: 28},
	month: {name: "month", min: 1, max: 12, last: 12, hashLast: 12,
		names: []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}},
	dayOfWeek: {name: "day of week", max: 7, last: 6, hashLast: 6,
		names: []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}},
}

// allowed describes the values of the field.
func (r *fieldRule) allowed() string {
	switch {
	case r.last < r.max:
		return "0 to 7 (0 and 7 are Sunday) or SUN to SAT"
	case r.names != nil:
		return fmt.Sprintf("%d to %d or %s to %s", r.min, r.max, r.names[0], r.names[len(r.names)-1])
	}
	return fmt.Sprintf("%d to %d", r.min, r.max)
}

// token is a part of the parsed text.
type token struct {
	text   string
	offset int
}

// cut splits at the first separator. The second token is empty if there is none.
func (t token) cut(separator string) (before, after token, found bool) {
	left, right, found := strings.Cut(t.text, separator)
	return token{left, t.offset}, token{right, t.offset + len(left) + len(separator)}, found
}

// span is the values from first to last, every step-th of them.
type span struct {
	first, last, step int
	// star means that the span is "*", "?" or "H/n", with or without a step.
	star bool
}

func (s span) bits() uint64 {
	var bits uint64
	for v := s.first; v <= s.last; v += s.step {
		bits |= 1 << v
	}
	return bits
}

// fieldParser parses one field.
type fieldParser struct {
	*fieldRule
	text string // the whole schedule, for errors
	key  string
	days *relativeDays // where the day fields put L, W and #
}

func (p *fieldParser) errorf(at token, format string, args ...any) error {
	return &ParseError{Text: shorten(p.text), Field: p.name, Offset: at.offset, Part: shorten(at.text),
		Message: fmt.Sprintf(format, args...)}
}

// field parses a list. It returns the set of values, with Sunday as 0, without those of relativeDays,
// and whether the field begins with "*" or an equivalent.
func (p *fieldParser) field(t token) (bits uint64, star bool, err error) {
	if n := strings.Count(t.text, ",") + 1; n > MaxEntries {
		return 0, false, p.errorf(t, "has %d entries; must have at most %d", n, MaxEntries)
	}
	rest, more := t, true
	for first := true; more; first = false {
		var item token
		item, rest, more = rest.cut(",")
		if item.text == "" {
			return 0, false, p.errorf(t, "has an empty list entry; must have *, H, or %s on both sides of a comma", p.allowed())
		}
		switch relative, err := p.relative(item); {
		case err != nil:
			return 0, false, err
		case relative:
			continue
		}
		s, err := p.span(item)
		if err != nil {
			return 0, false, err
		}
		bits |= s.bits()
		star = star || first && s.star
	}
	if p.last < p.max && bits&(1<<7) != 0 {
		bits = bits&^(1<<7) | 1
	}
	return bits, star, nil
}

// span parses one item of a list: values and, after a slash, the step.
func (p *fieldParser) span(item token) (span, error) {
	values, step, stepped := item.cut("/")
	n := 1
	if stepped {
		var ok bool
		if n, ok = digits(step.text); !ok || n == 0 {
			return span{}, p.errorf(item, "the step after the slash must be a number from 1 to 9999")
		}
	}
	switch {
	case values.text == "":
		return span{}, p.errorf(item, "must have *, H, or %s before the slash", p.allowed())
	case values.text == "*" || values.text == "?":
		return span{p.min, p.last, n, true}, nil
	case values.text[0] == 'H':
		return p.hashed(item, values, n, stepped)
	}
	return p.valueRange(values, n, stepped)
}

// valueRange parses "5", "5-8" and "5-8/2", and "5/2", which robfig/cron reads as "from 5 on".
func (p *fieldParser) valueRange(t token, step int, stepped bool) (span, error) {
	from, to, ranged := t.cut("-")
	if ranged && (from.text == "" || to.text == "") {
		return span{}, p.errorf(t, "a range must have two values, each %s", p.allowed())
	}
	first, err := p.value(from)
	if err != nil {
		return span{}, err
	}
	last := first
	switch {
	case ranged:
		if last, err = p.value(to); err != nil {
			return span{}, err
		}
	case stepped:
		last = p.last
	}
	if last == 0 && first > 0 && p.max == 7 {
		last = 7 // FRI-SUN
	}
	if ranged && first > last {
		return span{}, p.errorf(t, "the range runs backwards; write the smaller value first, or two ranges: %s,%s",
			rangeText(first, p.last), rangeText(p.min, last))
	}
	return span{first, max(first, last), step, false}, nil
}

// rangeText writes a range as valueRange reads it.
func rangeText(first, last int) string {
	if first == last {
		return fmt.Sprint(first)
	}
	return fmt.Sprintf("%d-%d", first, last)
}

// hashed parses an entry that begins with H: a value derived from the key and the field, or with a
// step the first of several values. A range may follow in parentheses.
func (p *fieldParser) hashed(item, t token, step int, stepped bool) (span, error) {
	first, last := p.min, p.hashLast
	bounded := t.text != "H"
	if bounded {
		inner, ok := strings.CutPrefix(t.text, "H(")
		if ok {
			inner, ok = strings.CutSuffix(inner, ")")
		}
		if !ok || !strings.Contains(inner, "-") {
			return span{}, p.errorf(t, "H must be written H, H/n, H(a-b) or H(a-b)/n")
		}
		s, err := p.valueRange(token{inner, t.offset + len("H(")}, 1, false)
		if err != nil {
			return span{}, err
		}
		first, last = s.first, s.last
	}
	size := last - first + 1
	if !stepped {
		v := first + int(hash(p.key, p.name, 0)%uint64(size))
		return span{v, v, 1, false}, nil
	}
	if step > size {
		return span{}, p.errorf(item, "the step must be at most %d, the number of values from %d to %d", size, first, last)
	}
	return span{first + int(hash(p.key, p.name, 0)%uint64(step)), last, step, !bounded}, nil
}

// value parses a number or a name of the field.
func (p *fieldParser) value(t token) (int, error) {
	for i, name := range p.names {
		if strings.EqualFold(t.text, name) {
			return p.min + i, nil
		}
	}
	v, ok := digits(t.text)
	switch {
	case ok && v >= p.min && v <= p.max:
		return v, nil
	case strings.Contains(t.text, "~"):
		return 0, p.errorf(t, "random values are not supported; write H(a-b) for a value that is derived from the name")
	case isMisplaced(t.text):
		return 0, p.errorf(t, misplaced)
	}
	return 0, p.errorf(t, "must be %s", p.allowed())
}

// digits parses a decimal number of up to four digits, which is more than any field needs.
func digits(text string) (int, bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return int(n), err == nil && len(text) <= 4
}

// hash returns a pseudorandom number that depends only on its arguments. The times of existing
// schedules depend on it, so it must never change.
//
// It is FNV-1a with the finalizer of SplitMix64, because the low bits of FNV alone repeat for keys
// that differ only in their last character.
func hash(key, salt string, n int64) uint64 {
	const prime = 0x100000001b3
	h := uint64(0xcbf29ce484222325)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * prime
	}
	h *= prime // A zero byte, so that ("ab", "c") differs from ("a", "bc").
	for i := range len(salt) {
		h = (h ^ uint64(salt[i])) * prime
	}
	for shift := 0; shift < 64; shift += 8 {
		h = (h ^ uint64(n)>>shift&0xff) * prime
	}
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// Jitter returns the delay of a run after its scheduled time: from zero to limit, both included, in
// milliseconds, evenly distributed. It depends only on the key (namespace/name of the object) and
// the scheduled time. A limit below one millisecond gives zero.
func Jitter(key string, nominal time.Time, limit time.Duration) time.Duration {
	steps := limit.Milliseconds()
	if steps <= 0 {
		return 0
	}
	return time.Duration(hash(key, "jitter", nominal.Unix())%uint64(steps+1)) * time.Millisecond
}
