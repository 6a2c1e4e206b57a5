// Package cron computes the times of cron schedules. It is pure: no clock, no Kubernetes types, and
// no I/O except loading time zones. The same input gives the same times on every machine.
//
// [Parse] parses one schedule. A [Plan] combines schedules with a time zone, a daylight saving rule
// and excluded dates, and returns the next run, the previous run and the number of runs in an
// interval. Runs are at whole seconds. No function but [Plan.Omissions] enumerates seconds or minutes: the cost depends
// on the number of offset changes of the zone in the interval, not on the number of runs, and Parse
// detects a schedule that never matches.
//
// # Fields
//
// A schedule has five fields (minute, hour, day of month, month, day of week), or six with leading
// seconds, as in crontab(5) of cronie. Two extensions of robfig/cron, the library of CronJob, work
// too: "?" for "*", and "5/15" for "5-59/15". Day 7 is Sunday, and a range of days may end with
// Sunday ("FRI-SUN"); other ranges do not wrap around. H and its forms are those of Jenkins.
//
// If both day of month and day of week are restricted, a day has to match one of them; otherwise,
// both. As in cronie, a field is unrestricted if it begins with "*", even in "*/2": "0 0 */2 * MON"
// runs on Mondays with an odd date, "0 0 1-31/2 * MON" on Mondays and on odd dates. "?" counts as
// "*", and so does "H/n", which is "*/n" with another offset.
//
// L, W and # in the day fields have the meanings of Quartz: "L", "L-3", "LW", "15W", "5L" and "2#1", with the days of
// the week of crontab(5). They restrict their field. A month without such a day has no run; "W" stays in its month. "L" alone is
// refused as a day of the week: it is Saturday in Quartz, and easily taken for the last Saturday of the month.
//
// # Daylight saving
//
// [Once] is the rule of cron(8) of cronie. A schedule whose minute or hour begins with "*", "?" or
// "H/n" follows real time: times that do not exist are skipped, and times that occur twice run
// twice. All others are fixed times. Fixed times in a gap run at the first instant after it, at
// most once per schedule because they share one scheduled time; those in a repeated hour run only
// the first time. Changes of three hours or more (a zone that crosses the date line) are treated as
// clock corrections: nothing is caught up or held back. [Literal] treats all schedules as following
// real time.
//
// # Every
//
// "@every D" runs at [Options.Anchor] plus multiples of D in absolute time, independent of zone and
// daylight saving. The times depend neither on the time of the call nor on earlier runs, so they
// survive restarts without state.
//
// docs/crontab-schedules.md and docs/crontab-times.md are the user documentation. docs/internals/schedules.md has more examples
// and a comparison with other implementations. The tests of this package verify both.
package cron
