package crontab

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func TestUsageErrors(t *testing.T) {
	for args, want := range map[string]string{
		"trigger":             "takes one NAME",
		"suspend a b":         "takes one NAME",
		"resume":              "takes one NAME",
		"next":                "takes one NAME",
		"next a --count 0":    "--count=0: must be",
		"next a --count 1001": "--count=1001: must be",
		"list a":              "takes no argument",
	} {
		_, err := harness.Execute(t, New(), strings.Fields(args)...)
		if wrong := (*usage.Error)(nil); !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

func TestJobState(t *testing.T) {
	condition := func(kind batchv1.JobConditionType) []batchv1.JobCondition {
		return []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded", Message: "It failed"}}
	}
	for _, test := range []struct {
		name   string
		status batchv1.JobStatus
		done   bool
		line   string
		err    string
	}{
		{"active", batchv1.JobStatus{Active: 1, Failed: 2}, false, "Job a: 1 active, 2 failed", ""},
		{"complete", batchv1.JobStatus{Conditions: condition(batchv1.JobComplete)}, true, "", ""},
		{"failed", batchv1.JobStatus{Conditions: condition(batchv1.JobFailed)}, false, "", "Job a: BackoffLimitExceeded: It failed; kubectl logs job/a"},
	} {
		done, line, err := jobState(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: test.status})
		if done != test.done || line != test.line || (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %v, %q, %v", test.name, done, line, err)
		}
	}
}

func TestPrintCronTabs(t *testing.T) {
	now := time.Now()
	created := metav1.NewTime(now.Add(-time.Hour))
	backup := stablev1.CronTab{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "backup", CreationTimestamp: created}}
	backup.Spec.Schedules = []stablev1.Schedule{"@daily", "0 12 * * *"}
	backup.Status = stablev1.CronTabStatus{
		ActiveCount: 1, NextScheduleLocalTime: "2026-11-25T12:00:00+01:00", LastRun: &stablev1.FinishedRun{Result: "Failed"},
		Conditions: []metav1.Condition{{Type: stablev1.ConditionReady, Reason: "Scheduled"}},
	}
	empty := stablev1.CronTab{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "new", CreationTimestamp: created}}
	want := `NAMESPACE   NAME     SCHEDULE             STATUS      ACTIVE   LAST RESULT   NEXT                        AGE
team        backup   @daily; 0 12 * * *   Scheduled   1        Failed        2026-11-25T12:00:00+01:00   60m
team        new      -                    Pending     0        -             -                           60m
`
	var out bytes.Buffer
	err := printCronTabs(&out, []stablev1.CronTab{backup, empty}, true, now)
	if diff := cmp.Diff(want, out.String()); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
}
