package cron

import (
	"testing"
	"time"
)

func BenchmarkNext(b *testing.B) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	berlin := mustLoad(b, "Europe/Berlin")
	for _, bb := range []struct{ name, text string }{
		{"every-5-minutes", "*/5 * * * *"},
		{"daily", "30 2 * * *"},
		{"every-second", "* * * * * *"},
		{"yearly", "@yearly"},
		{"leap-day", "0 0 29 2 *"},
		{"leap-day-on-a-sunday", "0 0 29 2 */7"},
		{"never", "0 0 31 2 *"},
		{"every", "@every 90s"},
	} {
		b.Run(bb.name, func(b *testing.B) {
			p := mustNew(b, Options{Schedules: []*Schedule{mustParse(b, bb.text, "")}, Location: berlin})
			b.ReportAllocs()
			for b.Loop() {
				p.Next(now)
			}
		})
	}
	// 40 years without a run: 2096 is the last leap year of its century.
	b.Run("rarest", func(b *testing.B) {
		p := mustNew(b, Options{Schedules: []*Schedule{mustParse(b, "0 0 29 2 */7", "")}, Location: berlin})
		from := time.Date(2088, 3, 1, 0, 0, 0, 0, time.UTC)
		b.ReportAllocs()
		for b.Loop() {
			p.Next(from)
		}
	})
	// A wildcard that only matches in the hour that the clocks skip on the last Sunday of March.
	b.Run("always-in-a-gap", func(b *testing.B) {
		p := mustNew(b, Options{Schedules: []*Schedule{mustParse(b, "*/30 2 25-31 3 */7", "")}, Location: berlin})
		b.ReportAllocs()
		for b.Loop() {
			p.Next(now)
		}
	})
}

func BenchmarkCountTenYears(b *testing.B) {
	from := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	to := from.AddDate(10, 0, 0)
	for _, bb := range []struct {
		name  string
		texts []string
	}{
		{"every-second", []string{"* * * * * *"}},
		{"daily", []string{"30 2 * * *"}},
		{"every", []string{"@every 1s"}},
		{"three-schedules", []string{"* * * * * *", "*/7 9-17 * * MON-FRI", "0 0 1 * *"}},
		{"three-schedules-and-every", []string{"*/2 * * * *", "*/7 9-17 * * MON-FRI", "@every 7m", "0 0 1 * *"}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			o := Options{Location: mustLoad(b, "Europe/Berlin")}
			for _, text := range bb.texts {
				o.Schedules = append(o.Schedules, mustParse(b, text, ""))
			}
			p := mustNew(b, o)
			b.ReportAllocs()
			for b.Loop() {
				p.Count(from, to)
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		mustParse(b, "*/15 9-17 * JAN-JUN MON-FRI", "default/backup")
	}
}

func BenchmarkJitter(b *testing.B) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	b.ReportAllocs()
	for b.Loop() {
		Jitter("default/backup", now, time.Minute)
	}
}
