package cron

import (
	"strings"
	"testing"
)

// wantVerdicts is the number of answers in each class. It changes with the rules of this package,
// and with the libraries after make cronvectors.
var wantVerdicts = map[DaylightSaving]map[verdict]int{
	Once: {
		{agree, agree}:            727006,
		{agree, refuses}:          29882,
		{"star", "star"}:          21027,
		{agree, "gap"}:            11369,
		{agree, uneven}:           9857,
		{refuses, agree}:          8555,
		{"repeated", agree}:       4105,
		{"gap", "gap"}:            3824,
		{"star", refuses}:         3110,
		{refuses, "star"}:         3025,
		{agree, "repeated"}:       2238,
		{agree, "forgets"}:        1743,
		{"repeated", "repeated"}:  1324,
		{"repeated", "forgets"}:   1161,
		{"gap", agree}:            1141,
		{"repeated", refuses}:     672,
		{"gap", uneven}:           648,
		{"gap", refuses}:          546,
		{"overrun", agree}:        355,
		{refuses, "gap"}:          333,
		{refuses, uneven}:         311,
		{"star", "star+gap"}:      301,
		{"repeated", uneven}:      285,
		{refuses, "repeated"}:     167,
		{"star", uneven}:          158,
		{"star+overrun", "star"}:  154,
		{"star", "star+forgets"}:  130,
		{refuses, "star+forgets"}: 49,
		{agree, "gap+forgets"}:    4,
	},
	Literal: {
		{agree, agree}:                     720103,
		{agree, refuses}:                   30213,
		{"star", "star"}:                   20337,
		{"gap", "gap"}:                     11446,
		{agree, uneven}:                    8658,
		{refuses, agree}:                   8457,
		{"repeated", "repeated"}:           7516,
		{agree, "gap"}:                     7408,
		{agree, "repeated"}:                6212,
		{"star", refuses}:                  2931,
		{refuses, "star"}:                  2836,
		{"repeated", agree}:                2175,
		{"gap", agree}:                     654,
		{"star+gap", "star+gap"}:           589,
		{"gap", refuses}:                   577,
		{"star+repeated", "star+repeated"}: 402,
		{"overrun", agree}:                 355,
		{refuses, "gap"}:                   333,
		{refuses, uneven}:                  311,
		{"repeated", refuses}:              310,
		{"repeated", uneven}:               292,
		{refuses, "repeated"}:              265,
		{refuses, "star+repeated"}:         238,
		{"gap", uneven}:                    237,
		{"star+repeated", "star"}:          163,
		{"star+overrun", "star"}:           154,
		{"star+gap", refuses}:              135,
		{"star", uneven}:                   74,
		{"star+repeated", uneven}:          51,
		{"star+repeated", refuses}:         44,
		{"gap", "gap+forgets"}:             4,
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
