package crontab

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/crontab"
	"github.com/keelson-dev/keelson/internal/requests"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

const (
	first  = "2026-11-25T12:00:00Z"
	second = "2026-11-25T12:00:01Z"
)

// timeOf returns the time of a text.
func timeOf(text string) *metav1.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return &metav1.Time{Time: at}
}

func backup(change func(*stablev1.CronTab)) *stablev1.CronTab {
	cronTab := &stablev1.CronTab{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "backup"}}
	cronTab.Spec.JobTemplate = &stablev1.JobTemplate{}
	if change != nil {
		change(cronTab)
	}
	return cronTab
}

func withRegion(c *stablev1.CronTab) {
	c.Spec.Parameters = []stablev1.Parameter{{Name: "region", Default: "us", Enum: []stablev1.ParameterValue{"us", "eu"}}}
}

// waitsFor makes a run requested at first wait for an active one.
func waitsFor(job string) func(*stablev1.CronTab) {
	return func(c *stablev1.CronTab) {
		c.Spec.RunRequestedAt = timeOf(first)
		c.Spec.ConcurrencyPolicy = stablev1.ForbidConcurrent
		c.Status.Active = []corev1.ObjectReference{{Name: job}}
	}
}

// newTriggers returns a function that returns a trigger of the CronTab.
func newTriggers(t *testing.T, calls interceptor.Funcs, objects ...client.Object) (func() *trigger, client.WithWatch) {
	t.Helper()
	api := fake.NewClientBuilder().WithScheme(harness.Scheme(t, stablev1.AddToScheme)).WithObjects(objects...).
		WithStatusSubresource(&stablev1.CronTab{}).Build()
	return func() *trigger {
		objects := &object.Objects[*stablev1.CronTab]{Client: interceptor.NewClient(api, calls), API: &target.API{Namespace: "team"}, Kind: kind}
		return &trigger{cronTabs: &cronTabs{objects}, name: "backup"}
	}, api
}

// dryRun returns the flags of a dry run.
func dryRun(t *testing.T, mode string) (output object.Output) {
	t.Helper()
	var flags pflag.FlagSet
	output.AddFlags(&flags)
	if err := flags.Set("dry-run", mode); err != nil {
		t.Fatal(err)
	}
	return output
}

// A dry run checks the request and does not store it.
func TestTriggerDryRun(t *testing.T) {
	for _, mode := range []string{"client", "server"} {
		newTrigger, api := newTriggers(t, interceptor.Funcs{}, backup(nil))
		trigger := newTrigger()
		trigger.output = dryRun(t, mode)
		done, line, err := trigger.request(t.Context())
		var after stablev1.CronTab
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(backup(nil)), &after); err != nil {
			t.Fatal(err)
		}
		if !done || err != nil || after.Spec.RunRequestedAt != nil || trigger.changed.Spec.RunRequestedAt == nil {
			t.Errorf("%s: %v, %q, %v, stored %v", mode, done, line, err, after.Spec.RunRequestedAt)
		}
	}
}

// However many triggers run at once, each that succeeds has a run of its own.
func TestTriggersAtOnce(t *testing.T) {
	var runs []string
	var mu sync.Mutex
	// The controller starts the requested run as soon as somebody looks.
	answer := func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
		mu.Lock()
		defer mu.Unlock()
		var cronTab stablev1.CronTab
		if err := c.Get(ctx, key, &cronTab); err != nil {
			return err
		}
		if at := crontab.OpenRequest(&cronTab); !at.IsZero() {
			runs = append(runs, requests.Token(cronTab.Spec.RunRequestedAt))
			cronTab.Status.LastRunRequestedAt = &metav1.Time{Time: at}
			if err := c.Status().Update(ctx, &cronTab); err != nil {
				return err
			}
		}
		return c.Get(ctx, key, into, options...)
	}
	newTrigger, _ := newTriggers(t, interceptor.Funcs{Get: answer}, backup(nil))
	var requested []string
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			trigger := newTrigger()
			if err := object.Until(t.Context(), time.Minute, io.Discard, trigger.request); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			requested = append(requested, trigger.requested)
		})
	}
	all.Wait()
	if _, err := newTrigger().Find(t.Context(), "backup"); err != nil { // answers the last one
		t.Fatal(err)
	}
	slices.Sort(requested)
	if diff := cmp.Diff(requested, runs); diff != "" || len(slices.Compact(requested)) != 8 {
		t.Errorf("requested and run (-requested +run):\n%s", diff)
	}
}

// Somebody else requests a run after the trigger has looked: that request stays.
func TestTriggerLosesARace(t *testing.T) {
	ask := func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
		other := backup(waitsFor("backup-1"))
		if err := c.Patch(ctx, other, client.MergeFrom(backup(nil))); err != nil {
			return err
		}
		return c.Patch(ctx, object, patch, options...)
	}
	newTrigger, api := newTriggers(t, interceptor.Funcs{Patch: ask}, backup(nil))
	done, _, err := newTrigger().request(t.Context())
	var after stablev1.CronTab
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(backup(nil)), &after); err != nil {
		t.Fatal(err)
	}
	if got := requests.Token(after.Spec.RunRequestedAt); done || err != nil || got != first {
		t.Errorf("%v, %v, the request is %s", done, err, got)
	}
}

func TestTriggerAsksOnce(t *testing.T) {
	for _, test := range []struct {
		name           string
		cronTab        *stablev1.CronTab
		queues, asks   bool
		values         crontab.Values
		line, obstacle string
		err            string
	}{
		{name: "a run", cronTab: backup(nil), asks: true},
		{name: "the last one has started", asks: true, cronTab: backup(func(c *stablev1.CronTab) {
			c.Spec.RunRequestedAt = timeOf(first)
			c.Status.LastRunRequestedAt = &metav1.Time{Time: time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)}
		})},
		{name: "a run that waits", asks: true, obstacle: "The limit of concurrencyPolicy Forbid is reached, 1 active at a time: backup-1",
			cronTab: backup(func(c *stablev1.CronTab) { waitsFor("backup-1")(c); c.Spec.RunRequestedAt = nil })},
		{name: "the last one has not started", line: "backup: the run requested at " + first + " has not started yet",
			cronTab: backup(func(c *stablev1.CronTab) { waitsFor("backup-1")(c); c.Status.Active = nil })},
		{name: "the last one waits", cronTab: backup(waitsFor("backup-1")),
			err: "backup: the run requested at " + first + " has not started: The limit of concurrencyPolicy Forbid is reached, 1 active at a time: backup-1. Only one requested run can wait"},
		{name: "the last one waits, and so does this", cronTab: backup(waitsFor("backup-1")), queues: true,
			line: "backup: the run requested at " + first + " has not started: The limit of concurrencyPolicy Forbid is reached, 1 active at a time: backup-1"},
		{name: "the last one is rejected", cronTab: backup(func(c *stablev1.CronTab) {
			waitsFor("backup-1")(c)
			c.Status.Conditions = []metav1.Condition{{Type: stablev1.ConditionReady, Status: metav1.ConditionFalse, Reason: stablev1.ReasonJobRejected, Message: "Exceeded quota"}}
		}), err: "has not started: Exceeded quota"},
		{name: "with a value", cronTab: backup(withRegion), values: crontab.Values{"region": "eu"}, asks: true},
		{name: "without a value, after a run with one", cronTab: backup(func(c *stablev1.CronTab) { withRegion(c); c.Spec.RunParameters = crontab.Values{"region": "eu"} }), asks: true},
		{name: "a value that is not allowed", cronTab: backup(withRegion), values: crontab.Values{"region": "mars"},
			err: `CronTab team/backup: the parameter "region" cannot be "mars", only "us", "eu"; --set NAME=VALUE sets`},
		{name: "no template", cronTab: backup(func(c *stablev1.CronTab) { c.Spec.JobTemplate = nil }), err: "no spec.jobTemplate"},
	} {
		t.Run(test.name, func(t *testing.T) {
			newTrigger, api := newTriggers(t, interceptor.Funcs{}, test.cronTab)
			trigger := newTrigger()
			trigger.queues, trigger.values = test.queues, test.values
			done, line, err := trigger.request(t.Context())
			if done != test.asks || line != test.line || trigger.obstacle != test.obstacle {
				t.Errorf("%v, %q, %q", done, line, trigger.obstacle)
			}
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want %q", err, test.err)
			}
			var after stablev1.CronTab
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(test.cronTab), &after); err != nil {
				t.Fatal(err)
			}
			was, is := requests.Token(test.cronTab.Spec.RunRequestedAt), requests.Token(after.Spec.RunRequestedAt)
			if (was != is) != test.asks || test.asks && is != trigger.requested {
				t.Errorf("requested %q after %q", is, was)
			}
			if diff := cmp.Diff(test.values, crontab.Values(after.Spec.RunParameters)); test.asks && diff != "" {
				t.Errorf("values (-want +got):\n%s", diff)
			}
		})
	}
}

// What is said about a run that was requested at second.
func TestHasSucceeded(t *testing.T) {
	job := func(conditions ...batchv1.JobCondition) *batchv1.Job {
		return &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "backup-1", Labels: map[string]string{stablev1.NameLabel: "backup"},
				Annotations: map[string]string{stablev1.RunRequestedAtAnnotation: second}},
			Status: batchv1.JobStatus{Conditions: conditions},
		}
	}
	suspended := func(c *stablev1.CronTab) {
		c.Spec.RunRequestedAt = timeOf(second)
		c.Status.Conditions = []metav1.Condition{{Type: stablev1.ConditionReady, Status: metav1.ConditionTrue, Reason: stablev1.ReasonSuspended, Message: "spec.suspend is true"}}
	}
	answered := func(result stablev1.RunResult) func(*stablev1.CronTab) {
		return func(c *stablev1.CronTab) {
			suspended(c)
			c.Status.LastRunRequestedAt = &metav1.Time{Time: time.Date(2026, 11, 25, 12, 0, 1, 0, time.UTC)}
			c.Status.LastRun = &stablev1.FinishedRun{JobName: "backup-1", Result: result, Reason: "BackoffLimitExceeded"}
		}
	}
	for _, test := range []struct {
		name    string
		cronTab *stablev1.CronTab
		job     *batchv1.Job
		seen    string
		done    bool
		line    string
		err     string
	}{
		{name: "not started, while suspended", cronTab: backup(suspended), line: "backup: the run requested at " + second + " has not started yet"},
		{name: "active", cronTab: backup(suspended), job: job(), line: "Job backup-1: 0 active, 0 failed"},
		{name: "complete", cronTab: backup(suspended), job: job(batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}), done: true},
		{name: "succeeded, and its Job is gone", cronTab: backup(answered(stablev1.RunSucceeded)), seen: "backup-1", done: true},
		{name: "failed, and its Job is gone", cronTab: backup(answered(stablev1.RunFailed)), seen: "backup-1", err: "the run failed: Job backup-1: BackoffLimitExceeded"},
		{name: "its Job was deleted", cronTab: backup(answered(stablev1.RunSucceeded)), err: "has no Job"},
		{name: "replaced by another", cronTab: backup(waitsFor("backup-0")), err: "the request was withdrawn"},
	} {
		t.Run(test.name, func(t *testing.T) {
			objects := []client.Object{test.cronTab}
			if test.job != nil {
				objects = append(objects, test.job)
			}
			newTrigger, _ := newTriggers(t, interceptor.Funcs{}, objects...)
			trigger := newTrigger()
			trigger.requested, trigger.job = second, test.seen
			done, line, err := trigger.hasSucceeded(t.Context())
			if done != test.done || line != test.line || (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("%v, %q, %v", done, line, err)
			}
		})
	}
}
