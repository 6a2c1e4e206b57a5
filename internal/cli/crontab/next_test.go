package crontab

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/internal/testing/harness"
)

var update = flag.Bool("update", false, "rewrite the output of the commands of the page")

// TestNextOfPage types the commands of docs/crontab-times.md with a manifest that is not applied.
func TestNextOfPage(t *testing.T) {
	const path = "../../../docs/crontab-times.md"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	manifest := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(page)
	blocks := regexp.MustCompile("(?s)```console\n\\$ keelson crontab (next -f try.yaml [^\n]*)\n(.*?)```").FindAllSubmatch(page, -1)
	if manifest == nil || len(blocks) != 2 {
		t.Fatalf("the page has %d commands", len(blocks))
	}
	file := write(t, string(manifest[1]))
	for _, block := range blocks {
		got, err := harness.Execute(t, New(), strings.Fields(strings.Replace(string(block[1]), "try.yaml", file, 1))...)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(block[2]), got); diff != "" && !*update {
			t.Errorf("%s (-page +got):\n%s", block[1], diff)
		}
		page = []byte(strings.Replace(string(page), string(block[0]), "```console\n$ keelson crontab "+string(block[1])+"\n"+got+"```", 1))
	}
	if *update {
		if err := os.WriteFile(path, page, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "crontab.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const cronTab = "apiVersion: stable.example.com/v1\nkind: CronTab\nmetadata: {name: NAME, namespace: a}\nspec:\n  "

func TestNextOfManifest(t *testing.T) {
	one := func(spec string) string { return strings.Replace(cronTab, "NAME", "one", 1) + spec }
	berlin := "timeZone: Europe/Berlin\n  schedule: "
	two := one(`schedule: "@daily"`) + "\n---\napiVersion: v1\nkind: ConfigMap\ndata: {unknown: field}\n---\n" + strings.Replace(cronTab, "NAME", "two", 1) + `schedule: "@hourly"`
	for _, tt := range []struct {
		name, manifest, args string
		want                 string
		err                  string
	}{
		{
			"from is included, in the zone of the CronTab", one(berlin + `"@hourly"`), "--count 2 --from 2026-12-24",
			"2026-12-24T00:00:00+01:00 Thu\n2026-12-24T01:00:00+01:00 Thu\n", "",
		},
		{"in another zone", one(berlin + `"@daily"`), "--count 1 --from 2026-12-24T12:00 --time-zone America/New_York", "2026-12-24T18:00:00-05:00 Thu\n", ""},
		{"an instant", one(berlin + `"@hourly"`), "--count 1 --from 2026-12-24T00:30:00Z", "2026-12-24T02:00:00+01:00 Thu\n", ""},
		{"one of several CronTabs", two, "two --count 1 --from 2026-01-01T00:30", "2026-01-01T01:00:00Z Thu\n", ""},
		{
			"the second of two times, too", one(berlin + `"30 2 * * *"` + "\n  daylightSaving: Literal"), "--count 2 --from 2026-10-25 --explain",
			"2026-10-25T02:30:00+02:00 Sun  the clocks repeat this time: the first of two\n2026-10-25T02:30:00+01:00 Sun  the clocks repeat this time: the second of two\n", "",
		},
		{
			"a time that the clocks skip", one(berlin + `"*/30 2 * * *"`), "--count 1 --from 2026-03-29 --explain",
			"2026-03-29T02:00:00+01:00 Sun  no run: the clocks skip this time, 2 times until 2026-03-29T02:30:00+01:00 Sun\n2026-03-30T02:00:00+02:00 Mon\n", "",
		},
		{
			"a time that the clocks skip runs right after", one(berlin + `"30 2 * * *"`), "--count 1 --from 2026-03-29 --explain",
			"2026-03-29T03:00:00+02:00 Sun  the clocks skip the scheduled time, so it runs right after\n", "",
		},
		{
			"before and after", one(`schedule: "@daily"` + "\n  notBefore: 2026-01-02T12:00:00Z\n  notAfter: 2026-01-03T12:00:00Z"), "--count 3 --from 2026-01-01 --explain",
			"2026-01-01T00:00:00Z Thu  no run: before spec.notBefore, 2 times until 2026-01-02T00:00:00Z Fri\n2026-01-03T00:00:00Z Sat\n" +
				"2026-01-04T00:00:00Z Sun  no run: after spec.notAfter, 2 times until 2026-01-05T00:00:00Z Mon\n", "",
		},
		{
			"no more", one(`schedule: "@daily"` + "\n  notAfter: 2026-01-01T00:00:00Z"), "--count 1 --from 2026-01-02 --explain",
			"2026-01-02T00:00:00Z Fri  no run: after spec.notAfter\n", "no time of the schedule of CronTab a/one is to come",
		},
		{"after others", one("after: [{crontab: two}]"), "", "", "CronTab a/one has no schedule: it runs after two"},
		{"several CronTabs without a name", two, "", "", "has several CronTabs"},
		{"another name", two, "three", "", `has no CronTab "three"`},
		{"another kind", "apiVersion: batch/v1\nkind: CronJob\n", "", "", "has no CronTab"},
		{"an unknown field", one("shedule: x"), "", "", `unknown field "shedule"`},
		{"an invalid schedule", one(`schedule: "61 * * * *"`), "", "", `CronTab a/one: spec.schedule: Invalid value: "61 * * * *": minute "61"`},
		{"no such time", one(`schedule: "@daily"`), "--from soon", "", "--from=soon: must be a date"},
		{"no such zone", one(`schedule: "@daily"`), "--time-zone PST8", "", "--time-zone: unknown time zone"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := harness.Execute(t, New(), append([]string{"next", "-f", write(t, tt.manifest)}, strings.Fields(tt.args)...)...)
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("error %v, want %q", err, tt.err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
