package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
)

// policies are manifests whose Jobs fail, or outlast the minute because their pods cannot be
// scheduled. The kinds are filled in.
var policies = map[string]string{
	"allow":     "concurrencyPolicy: Allow",
	"forbid":    "concurrencyPolicy: Forbid",
	"replace":   "concurrencyPolicy: Replace",
	"suspended": "suspend: true",
	"fails":     "failedJobsHistoryLimit: 5\n  jobTemplate: {spec: {activeDeadlineSeconds: 2, template: {spec: " + nowhere + "}}}",
	"forgets":   "failedJobsHistoryLimit: 0\n  jobTemplate: {spec: {activeDeadlineSeconds: 2, template: {spec: " + nowhere + "}}}",
}

const nowhere = "{restartPolicy: Never, nodeSelector: {no: node}, containers: [{name: main, image: busybox}]}"

// policyManifest returns a manifest of a CronJob or a CronTab.
func policyManifest(version, kind, name, fields string) string {
	manifest := fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %s}\nspec:\n  schedule: \"* * * * *\"\n  timeZone: Etc/UTC\n  %s\n", version, kind, name, fields)
	if name != "fails" && name != "forgets" {
		manifest += "  jobTemplate: {spec: {template: {spec: " + nowhere + "}}}\n"
	}
	return manifest
}

// Over two minutes a CronTab has the same Jobs as a CronJob with the same policy, and reports the
// same failures.
func TestLongCronTabActsAsCronJob(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	withinOneMinute(t)
	var manifests []string
	for name, fields := range policies {
		for kind, version := range map[string]string{"CronJob": "batch/v1", "CronTab": "stable.example.com/v1"} {
			manifests = append(manifests, policyManifest(version, kind, name, fields))
		}
	}
	s.applyAll(t, manifests)
	// A wait of a minute may exceed the timeout of a command, so it is split in two.
	for range 2 {
		before := len(s.jobTimes(t, "allow")["CronTab"])
		recorded := s.words([]string{"wait", fmt.Sprintf("--for=jsonpath={.status.active[%d].name}", before), "crontab/allow", "--timeout=50s"})
		if result := s.Run(t, recorded...); result.Code != 0 {
			s.OK(t, recorded...)
		}
	}
	for name, want := range map[string]int{"allow": 2, "forbid": 1, "replace": 1, "suspended": 0, "fails": 2, "forgets": 0} {
		of := map[string][]string{}
		s.until(t, fmt.Sprintf("CronJob and CronTab %s have the same %d Jobs", name, want), func(string) bool {
			of = s.jobTimes(t, name)
			return cmp.Equal(of["CronJob"], of["CronTab"]) && len(of["CronTab"]) == want
		}, "get", "jobs", "-o", "name")
		t.Logf("%s: %q", name, of["CronTab"])
	}
}

// withinOneMinute waits until an operation of some seconds fits into the current minute: objects
// created before its end run then, later ones do not.
func withinOneMinute(t *testing.T) {
	t.Helper()
	if now := time.Now(); now.Second() > 40 {
		<-time.After(time.Until(now.Truncate(time.Minute).Add(time.Minute)))
	}
}

// applyAll applies manifests by one command, which takes less time on a busy host than one for each.
func (s session) applyAll(t *testing.T, manifests []string) {
	t.Helper()
	s.Stdin = strings.Join(manifests, "---\n")
	s.kubectl(t, "apply", "-f", "-")
}

// jobTimes returns the times of the Jobs of the CronJob and the CronTab with a name, and their
// results.
func (s session) jobTimes(t *testing.T, name string) map[string][]string {
	t.Helper()
	of := map[string][]string{}
	for kind, jobs := range s.jobsByOwner(t, name) {
		for _, job := range jobs {
			text := job.Annotations[batchv1.CronJobScheduledTimestampAnnotation]
			for _, condition := range job.Status.Conditions {
				text += fmt.Sprintf(" %s=%s %s", condition.Type, condition.Status, condition.Reason)
			}
			of[kind] = append(of[kind], text)
		}
		slices.Sort(of[kind])
	}
	return of
}
