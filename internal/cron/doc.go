// Package cron knows when a schedule runs. It is pure: no clock, no I/O but the loading of
// time zones, no Kubernetes types; the same input gives the same times on every machine.
//
// [Parse] reads one schedule; a [Plan] joins schedules with a time zone, a rule for daylight
// saving and the dates without runs, and answers what comes next, what came before and how
// many there were. All runs are at whole seconds. No question enumerates seconds or minutes:
// the cost depends on the changes of the zone's offset that lie in between, not on the runs,
// and a schedule that never matches is known to when it is parsed.
//
// # Fields
//
// Five fields (minute, hour, day of month, month, day of week) or six with leading seconds, as
// in crontab(5) of cronie, and what robfig/cron, the library of CronJob, reads beyond that: "?"
// for "*", and "5/15" for "5-59/15". Day 7 is Sunday; a range of days may end with Sunday
// ("FRI-SUN"); other ranges do not wrap. H and its forms are those of Jenkins.
//
// If day of month and day of week are both restricted, a day has to match one of them; if not,
// both. As in cronie, a field is unrestricted if it begins with "*", so "*/2" is:
// "0 0 */2 * MON" runs on Mondays with an odd date, "0 0 1-31/2 * MON" on Mondays and on
// odd dates. "?" counts as "*", and so does "H/n", which is "*/n" with another beginning.
//
// # Daylight saving
//
// [Once] is the rule of cron(8) of cronie. A schedule whose minute or hour begins with "*", "?"
// or "H/n" follows real time: times that do not exist are left out, times that come twice run
// twice. All others are fixed times: those in a gap run at the first instant after it, at most
// once for each schedule because all of them have the same nominal time, and those in a repeated
// hour run the first time only. Changes of three hours or more (a zone that crosses the date
// line) are corrections of the clock: nothing is caught up, nothing held back.
// [Literal] treats all schedules as those that follow real time.
//
// # Every
//
// "@every D" runs at [Options.Anchor] plus multiples of D, on the time line, whatever zone and
// daylight saving say. The times do not depend on when somebody asks or on what ran before, so
// they survive restarts without any state.
//
// docs/crontab-schedules.md is the page for users, with examples and a comparison with other
// programs; the tests of this package check what stands there.
package cron
