package main

import (
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

const (
	space    = `[ \t\r\n]`
	notSpace = `[^ \t\r\n]`
	// step is a number from 1 to 9999 with up to four digits.
	step    = `(0{0,3}[1-9]|0{0,2}[1-9][0-9]|0?[1-9][0-9]{2}|[1-9][0-9]{3})`
	dayDate = `(0{0,3}[1-9]|0{0,2}[12][0-9]|0{0,2}3[01])`
	weekday = `(0{0,3}[0-7]|(?i:SUN|MON|TUE|WED|THU|FRI|SAT))`
)

// everyDuration matches @every with a duration of less than 290 years, which is the longest one that expressions know: the text of an error of
// theirs would precede the message.
const everyDuration = `@every` + space + `+([0-9]{1,6}h)?([0-9]{1,7}m)?([0-9]{1,9}([.][0-9]{0,9})?s|[0-9]{1,9}ms)?` + space + `*$`

// fields are the fields of a schedule, last to first.
var fields = []struct {
	name, allowed string
	// value matches one value of up to four digits.
	value string
	// relative matches L, W and #, and forms are examples of them.
	relative, forms string
}{
	{"day of week", "0 to 7 (0 and 7 are Sunday) or SUN to SAT", weekday, weekday + `([Ll]|#[1-5])`, "5L, 2#1"},
	{"month", "1 to 12 or JAN to DEC", `(0{0,3}[1-9]|0{0,2}1[0-2]|(?i:JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC))`, "", ""},
	{"day of month", "1 to 31", dayDate, `([Ll](-(0{0,3}[1-9]|0{0,2}[12][0-9]|0{0,2}30))?[Ww]?|` + dayDate + `[Ww])`, "L, L-3, LW, 15W"},
	{"hour", "0 to 23", `(0{0,3}[0-9]|0{0,2}1[0-9]|0{0,2}2[0-3])`, "", ""},
	{"minute", "0 to 59", `(0{0,3}[0-9]|0{0,2}[1-5][0-9])`, "", ""},
	{"second", "0 to 59", `(0{0,3}[0-9]|0{0,2}[1-5][0-9])`, "", ""},
}

// scheduleRules are the validation rules for a schedule. They accept few schedules that
// internal/cron rejects: reversed ranges, too large steps of H, and fractions of a second.
func scheduleRules() []apiextensionsv1.ValidationRule {
	rules := []apiextensionsv1.ValidationRule{
		unless(`^`+space+`*(CRON_)?TZ=`, "the time zone does not belong in the schedule: set spec.timeZone"),
		only(`^`+space+`*(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|@every`+space+`+`+notSpace+`+|`+
			`[^@ \t\r\n]`+notSpace+`*(`+space+`+`+notSpace+`+){4,5})`+space+`*$`,
			"must be five fields (minute, hour, day of month, month, day of week), six with a leading second, "+
				"or one of @yearly, @monthly, @weekly, @daily, @midnight, @hourly and @every DURATION"),
	}
	rules = append(rules, apiextensionsv1.ValidationRule{
		Rule: fmt.Sprintf(`!self.matches(%s) || self.matches(%s) && duration(self.trim().find(%s)) >= duration('1s')`,
			quote(`^`+space+`*@every`+space+`+`+notSpace+`+`+space+`*$`), quote(everyDuration), quote(notSpace+`+$`)),
		Message: "must be @every with one duration of at least 1s in hours, minutes and seconds, such as 90s, 1h30m or 24h",
	})
	for after, field := range fields {
		item := `([*?]|H(\(` + field.value + `-` + field.value + `\))?|` + field.value + `(-` + field.value + `)?)(/` + step + `)?`
		others := "these"
		if field.relative != "" {
			item = `(` + item + `|` + field.relative + `)`
			others = "these, or one of " + field.forms
		}
		list := item + `(,` + item + `)*`
		before := `^` + space + `*` + strings.Repeat(notSpace+`+`+space+`+`, len(fields)-1-after)
		optional := `^` + space + `*(` + notSpace + `+` + space + `+){0,1}` + strings.Repeat(notSpace+`+`+space+`+`, max(len(fields)-2-after, 0))
		rest := strings.Repeat(space+`+`+notSpace+`+`, after) + space + `*$`
		head := optional
		if field.name == "second" {
			head = before
		}
		// Another rule rejects a schedule with fewer fields.
		form := head + notSpace + `+` + rest
		rules = append(rules, apiextensionsv1.ValidationRule{
			Rule:    fmt.Sprintf(`self.contains('@') || !self.matches(%s) || self.matches(%s)`, quote(form), quote(head+list+rest)),
			Message: fmt.Sprintf("the %s must be *, H, or %s, or a range, list or step of %s", field.name, field.allowed, others),
		})
	}
	return rules
}

func only(pattern, message string) apiextensionsv1.ValidationRule {
	return apiextensionsv1.ValidationRule{Rule: "self.matches(" + quote(pattern) + ")", Message: message}
}

func unless(pattern, message string) apiextensionsv1.ValidationRule {
	return apiextensionsv1.ValidationRule{Rule: "!self.matches(" + quote(pattern) + ")", Message: message}
}

// quote returns text, which contains no quotation mark, as a raw CEL string.
func quote(text string) string { return "r'" + text + "'" }
