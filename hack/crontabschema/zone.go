package main

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// zoneName matches possible names of the IANA database: AREA/LOCATION, or one of the old names
// without an area, to which none are added. https://data.iana.org/time-zones/theory.html
const zoneName = `^((Africa|America|Antarctica|Arctic|Asia|Atlantic|Australia|Brazil|Canada|Chile|Europe|Indian|Mexico|Pacific|US)(/[A-Za-z0-9_+-]+)+|` +
	`Etc/(GMT([+]([0-9]|1[0-2])|-([0-9]|1[0-4])|0)?|Greenwich|UCT|UTC|Universal|Zulu)|` +
	`CET|CST6CDT|Cuba|EET|EST|EST5EDT|Egypt|Eire|Factory|GB|GB-Eire|GMT|GMT[+]0|GMT-0|GMT0|Greenwich|HST|Hongkong|Iceland|Iran|Israel|Jamaica|` +
	`Japan|Kwajalein|Libya|MET|MST|MST7MDT|NZ|NZ-CHAT|Navajo|PRC|PST8PDT|Poland|Portugal|ROC|ROK|Singapore|Turkey|UCT|UTC|Universal|W-SU|WET|Zulu)$`

// zoneRules are the validation rules for a time zone. Only a database knows the locations of an
// area; here it is the API server's, through getHours. For an unknown location that is an error,
// which no expression can catch, and the text of package time precedes the message. So the name is
// matched first: abbreviations such as PST, cities without an area, offsets and paths into the
// database get only the message.
func zoneRules() []apiextensionsv1.ValidationRule {
	return []apiextensionsv1.ValidationRule{{
		Rule:    "self.matches(" + quote(zoneName) + ") && timestamp('2000-01-01T00:00:00Z').getHours(self) >= 0",
		Message: "must be a name of the IANA time zone database, such as Europe/Berlin",
	}}
}
