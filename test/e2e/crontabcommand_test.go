package e2e

import (
	"testing"
	"time"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// A user runs, suspends and resumes a CronTab by command.
func TestSmokeCronTabByCommand(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	crontab := func(verb string, args ...string) []string {
		return append([]string{"keelson", "crontab", verb, "--kubeconfig", kubeconfig, "--namespace", s.namespace}, args...)
	}
	s.kubectl(t, "apply", "-f", manifest("crontab-backup.yaml"))
	transcript.Contains(t, s.OK(t, crontab("trigger", "backup", "--wait")...), "crontab/backup triggered")
	s.wait(t, "condition=LastRunSucceeded", "crontab/backup")
	s.kubectl(t, "patch", "crontab", "backup", "--type=merge", "-p", `{"spec":{"parameters":[{"name":"region","default":"us","enum":["us","eu"]}]}}`)
	transcript.Contains(t, s.OK(t, crontab("trigger", "backup", "--set", "region=eu", "--wait")...), "crontab/backup triggered")
	transcript.Contains(t, s.kubectl(t, "get", "jobs", "-o", `jsonpath={.items[*].metadata.annotations.crontab\.stable\.example\.com/parameters}`), `{"region":"eu"}`)
	transcript.Contains(t, s.OK(t, crontab("history", "backup")...), "OnDemand", "Succeeded", "region=eu")
	transcript.Contains(t, s.Fails(t, 1, crontab("trigger", "backup", "--set", "region=mars")...), `the parameter "region" cannot be "mars", only "us", "eu"`)
	transcript.Contains(t, s.OK(t, crontab("suspend", "backup")...), "crontab/backup suspended")
	s.untilField(t, "crontab/backup", `{.status.conditions[?(@.type=="Ready")].reason}`, "Suspended")
	transcript.Contains(t, s.OK(t, crontab("list")...), "backup", "@daily", "true", "Succeeded")
	transcript.Contains(t, s.OK(t, crontab("resume", "backup")...), "crontab/backup resumed")
	transcript.Contains(t, s.OK(t, crontab("backfill", "backup", "--from", "2026-11-01", "--to", "2026-11-03", "--dry-run=server")...), "2026-11-03T00:00:00Z Tue", "2026-11-01T00:00:00Z Sun")
	transcript.Contains(t, s.OK(t, crontab("backfill", "backup", "--from", "2026-11-01", "--to", "2026-11-03", "--max-concurrency", "2", "--wait")...), "crontab/backup backfill requested, scheduled times: 3")
	s.untilField(t, "crontab/backup", `{.status.backfill.done}`, "3")
	midnight := time.Now().UTC().Truncate(24 * time.Hour).Add(48 * time.Hour).Format(time.RFC3339)
	transcript.Contains(t, s.OK(t, crontab("next", "backup", "--count", "2", "--explain")...), midnight)
	transcript.Contains(t, s.OK(t, crontab("timeline", "--from", "2027-01-01", "--to", "2027-12-31")...), "CronTabs:  1", "Runs:      365", "is up to 1 runs. A row is a week")
	transcript.Contains(t, s.OK(t, crontab("timeline", "-o", "svg")...), "<svg ", "CronTabs: 1, runs: 7")
	transcript.Contains(t, s.Fails(t, 1, crontab("trigger", "nothing")...), `there is no CronTab "nothing" in the namespace `+s.namespace)

	// A run that fails is an error.
	s.kubectl(t, "patch", "crontab", "backup", "--type=merge", "-p",
		`{"spec":{"jobTemplate":{"containers":null,"restartPolicy":null,"spec":{"activeDeadlineSeconds":1,
		"template":{"spec":{"containers":[{"name":"backup","image":"mybackupscript:v9"}],"nodeSelector":{"no":"node"}}}}}}}`)
	transcript.Contains(t, s.Fails(t, 1, crontab("trigger", "backup", "--wait")...), "the run failed: Job backup-", "DeadlineExceeded")

	// Too many of them stop the schedule, which resume continues.
	s.kubectl(t, "patch", "crontab", "backup", "--type=merge", "-p", `{"spec":{"suspendAfterFailures":1}}`)
	s.Fails(t, 1, crontab("trigger", "backup", "--wait")...)
	s.untilField(t, "crontab/backup", `{.status.conditions[?(@.type=="Ready")].reason}`, "TooManyFailures")
	transcript.Contains(t, s.OK(t, crontab("resume", "backup")...), "crontab/backup resumed")
	s.untilField(t, "crontab/backup", `{.status.conditions[?(@.type=="Ready")].reason}`, "Scheduled")
}
