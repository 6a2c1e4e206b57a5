package cron

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func TestWords(t *testing.T) {
	for text, want := range map[string]string{
		"0 3 * * *":              "At 03:00 every day",
		"@daily":                 "At 00:00 every day",
		"@hourly":                "Every hour",
		"@every 90s":             "Every 1m30s, counted from the creation",
		"@every 48h":             "Every 48h, counted from the creation",
		"* * * * *":              "Every minute",
		"* * * * * *":            "Every second",
		"*/10 * * * * *":         "Every 10 seconds",
		"30 * * * * *":           "At second 30 of every minute",
		"*/10 5 * * * *":         "Every 10 seconds of minute 5 of every hour",
		"*/5 * * * *":            "Every 5 minutes",
		"*/5 8-17 * * MON-FRI":   "Every 5 minutes of hours 8 to 17 on Monday to Friday",
		"5 * * * *":              "At minute 5 of every hour",
		"5 */2 * * *":            "At minute 5 of every 2nd hour",
		"0 */2 * * *":            "Every 2 hours",
		"0 8-17 * * *":           "At minute 0 of hours 8 to 17",
		"30 8,12 * * SAT,SUN":    "At 08:30 and 12:30 on Saturday and Sunday",
		"15 0 3 * * FRI-SUN":     "At 03:00:15 on Friday to Sunday",
		"0 0 1 1 *":              "At 00:00 on day 1 of the month in January",
		"0 0 1,15 * MON":         "At 00:00 on days 1 and 15 of the month, and on Monday",
		"0 0 */10 * MON":         "At 00:00 on Monday if it is days 1, 11, 21 and 31 of the month",
		"0 0 30 FEB *":           "Never: there is no such date",
		"0 12 * JUN-AUG,DEC MON": "At 12:00 on Monday in June to August and December",
		"0 0 L * *":              "At 00:00 on the last day of the month",
		"0 0 1,15,L,L-1,L-3 * *": "At 00:00 on days 1 and 15 of the month, the last day of the month, the day before the last day of the month and the 3rd day before the last day of the month",
		"0 0 15W,LW,L-21W * *":   "At 00:00 on the weekday nearest day 15 of the month, the last weekday of the month and the weekday nearest the 21st day before the last day of the month",
		"0 0 * * 5L":             "At 00:00 on the last Friday of the month",
		"0 0 * 6 2#1,7#5,MON":    "At 00:00 on Monday, the first Tuesday of the month and the fifth Sunday of the month in June",
		"0 0 L * FRI#2":          "At 00:00 on the last day of the month, and on the second Friday of the month",
		"0 0 L * */7":            "At 00:00 on Sunday if it is the last day of the month",
		"0 0 15W * */6":          "Never: there is no such date",
		"59 59 23 31 12 *":       "At 23:59:59 on day 31 of the month in December",
	} {
		if got := mustParse(t, text, "").Words(); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// Schedules with the same words match the same times.
func TestWordsAreNotAmbiguous(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	field := func(last int, first int) string {
		n := last - first + 1
		v := func() int { return first + random.IntN(n) }
		switch random.IntN(7) {
		case 0:
			return fmt.Sprintf("*/%d", 1+random.IntN(n))
		case 1:
			return fmt.Sprint(v())
		case 2:
			return fmt.Sprintf("%d,%d", v(), v())
		case 3:
			from := v()
			return fmt.Sprintf("%d-%d", from, from+random.IntN(last-from+1))
		case 4:
			return fmt.Sprintf("%d/%d", v(), 1+random.IntN(n))
		case 5:
			switch last {
			case 31:
				return randomRelative(random, dayOfMonth)
			case 6:
				return randomRelative(random, dayOfWeek)
			}
		}
		return "*"
	}
	type sets struct {
		second, minute uint64
		hour, days     uint32
		month          uint16
		never          bool
	}
	meaning := func(s *Schedule) sets {
		if s.never {
			return sets{never: true}
		}
		got := sets{second: s.second, minute: s.minute, hour: s.hour, month: s.month}
		for day := range int64(400) { // 1970 began on a Thursday: enough to tell the sets of days of a year from each other
			if s.matchesDay(day) {
				got.days = got.days*31 + uint32(day)
			}
		}
		return got
	}
	seen := map[string]*Schedule{}
	for range 50_000 {
		text := fmt.Sprintf("%s %s %s %s %s %s", []string{"0", field(59, 0)}[random.IntN(2)], field(59, 0), field(23, 0), field(31, 1), field(12, 1), field(6, 0))
		s := mustParse(t, text, "")
		words := s.Words()
		before := seen[words]
		if before == nil {
			seen[words] = s
		} else if before.text != text && meaning(before) != meaning(s) {
			t.Fatalf("%q and %q are both %q", before.text, text, words)
		}
	}
}
