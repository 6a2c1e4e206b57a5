package cron

import (
	"strings"
	"testing"
)

// wantAgreement is the number of answers that are those of croner, and of cron-parser. It changes
// with the rules of this package, and with the libraries after make cronvectors.
var wantAgreement = map[DaylightSaving]map[[2]bool]int{
	Once: {
		{true, true}:   727006,
		{true, false}:  55093,
		{false, true}:  14156,
		{false, false}: 37225,
	},
	Literal: {
		{true, true}:   720103,
		{true, false}:  52491,
		{false, true}:  11641,
		{false, false}: 49245,
	},
}

// TestOraclesRefuse lists the schedules that a library rejects in every zone.
func TestOraclesRefuse(t *testing.T) {
	const (
		noStart  = "croner wants a range or a star before a step"
		longStep = "croner wants a step that fits into the field"
		never    = "cron-parser wants days that exist"
		starList = "cron-parser wants no star in a list"
		other    = "cron-parser does not know it"
	)
	want := map[string]string{
		"5/15 * * * *":      noStart,
		"0 1/6 * * *":       noStart,
		"*/90 2 * * *":      longStep,
		"30 1 */40 * 0-6":   longStep,
		"0 0 31 2 *":        never,
		"0 0 30 2 *":        never,
		"0 0 31 4,6,9,11 *": never,
		"*,30 2 * * *":      starList,
		"30,* 2 * * *":      starList,
		"30 *,2 * * *":      starList,
		"30 2,* * * *":      starList,
		"0 0 *,13 * MON":    starList,
		"0 0 13,* * MON":    starList,
		"30 2 * * FRI-SUN":  other,
		"@midnight":         other,
	}
	o := mustReadOracles(t)
	got := map[string]string{}
	for s, schedule := range o.Schedules {
		for z := range o.Zones {
			for _, answer := range o.answers[s][z] {
				croner, cronParser, _ := strings.Cut(answer, "|")
				switch {
				case croner == "!":
					got[schedule] = "croner"
				case cronParser == "!":
					got[schedule] = "cron-parser"
				}
			}
		}
	}
	for schedule, reason := range want {
		library, _, _ := strings.Cut(reason, " ")
		if got[schedule] != library {
			t.Errorf("%q is refused by %q, want %q: %s", schedule, got[schedule], library, reason)
		}
		delete(got, schedule)
	}
	if len(got) > 0 {
		t.Errorf("Refused without a reason here: %v", got)
	}
}
