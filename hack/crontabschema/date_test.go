package main

import (
	"regexp"
	"testing"
	"time"
)

// The dates that match are those of the calendar.
func TestDate(t *testing.T) {
	pattern := regexp.MustCompile(`^` + date + `$`)
	for _, years := range [][2]int{{0, 9}, {99, 105}, {399, 405}, {1899, 2005}, {2095, 2105}, {9995, 9999}} {
		for y := years[0]; y <= years[1]; y++ {
			for m := range 14 {
				for d := range 33 {
					text := time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC).Format("2006") + "-" + twoDigits(m) + "-" + twoDigits(d)
					_, err := time.Parse(time.DateOnly, text)
					if want := err == nil && y > 0; pattern.MatchString(text) != want {
						t.Errorf("%s matches: %t, want %t", text, !want, want)
					}
				}
			}
		}
	}
}

func twoDigits(n int) string { return string([]byte{'0' + byte(n/10), '0' + byte(n%10)}) }

func TestEveryDuration(t *testing.T) {
	pattern := regexp.MustCompile(everyDuration)
	for text, want := range map[string]bool{
		"90s": true, "1h30m": true, "25h": true, "0s": true, "1500ms": true, "1.5s": true, "999999h9999999m999999999s": true,
		"1d": false, "5": false, "-5s": false, "1w": false, "9999999h": false, "1hour": false, "s": false,
	} {
		if got := pattern.MatchString("@every " + text); got != want {
			t.Errorf("@every %s matches: %t, want %t", text, got, want)
		}
		if !want {
			continue
		}
		if _, err := time.ParseDuration(text); err != nil {
			t.Errorf("@every %s matches, but its duration has the error %v", text, err)
		}
	}
}
