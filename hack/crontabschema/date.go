package main

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// date matches the dates of the years 1 to 9999. A function of expressions would do, but the text of its error precedes the message.
const (
	year     = `(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})`
	leapYear = `([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)`
	date     = `(` + year + `-((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)|` + leapYear + `-02-29)`
)

// dateRules are the validation rules for a date, or for two with a slash between them.
func dateRules() []apiextensionsv1.ValidationRule {
	return []apiextensionsv1.ValidationRule{{
		Rule:    "self.matches(" + quote(`^`+date+`(/`+date+`)?$`) + ") && self.split('/')[0] <= self.split('/')[self.split('/').size() - 1]",
		Message: "must be a date such as 2026-12-24, or two with a slash between them, the earlier one first",
	}}
}
