package crontab

import (
	"errors"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func TestUsageErrors(t *testing.T) {
	for args, want := range map[string]string{
		"trigger":                       "takes one NAME",
		"trigger a --set b":             "--set b: give each parameter once, as NAME=VALUE",
		"trigger a --set =b":            "--set =b: give each",
		"trigger a --set b=1 --set b=2": "--set b=2: give each",
		"backfill a":                    "--from and --to are required",
		"backfill a --from 1 --to 2 --reprocess some":    "--reprocess=some: must be none, failed or all",
		"backfill a --from 1 --to 2 --max-concurrency 0": "--max-concurrency=0: must be",
		"suspend":             "takes one or more NAMEs",
		"resume":              "takes one or more NAMEs",
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
