package crontab

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// attemptOf returns a Pod of a Job whose containers have ended or wait.
func attemptOf(job *batchv1.Job, name, created string, started ...string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, CreationTimestamp: *timeOf(created), Labels: map[string]string{stablev1.NameLabel: "backup"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
	}
	for _, container := range started {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: container, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}})
	}
	return pod
}

func TestLogs(t *testing.T) {
	cronTab := backup(func(c *stablev1.CronTab) { c.UID = "mine" })
	done := batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: *timeOf(second)}
	old := jobOf(cronTab, "backup-1", "2026-11-25T12:00:02Z", map[string]string{batchv1.CronJobScheduledTimestampAnnotation: first}, done)
	old.UID = "old"
	last := jobOf(cronTab, "backup-2", "2026-11-25T13:00:00Z", nil, done)
	last.UID = "last"
	waiting := jobOf(cronTab, "backup-3", "2026-11-25T11:00:00Z", nil, done)
	waiting.UID = "waiting"
	pods := []client.Object{
		attemptOf(old, "a", first, "main"), attemptOf(last, "c", second, "main"), attemptOf(last, "b", first, "main"), attemptOf(waiting, "d", first),
	}
	for _, test := range []struct{ name, run, out, err string }{
		{name: "the last run, with two attempts", out: "==> Pod b, container main <==\nb main\n==> Pod c, container main <==\nc main\n"},
		{name: "by its time", run: first, out: "a main\n"},
		{name: "by its Job", run: "backup-1", out: "a main\n"},
		{name: "no such run", run: second, err: "CronTab team/backup has no run " + second + " whose Job exists; keelson crontab history backup lists"},
		{name: "nothing has started", run: "backup-3", err: "no container of Job team/backup-3 has started; kubectl describe job backup-3 --namespace team"},
	} {
		t.Run(test.name, func(t *testing.T) {
			api := fake.NewClientBuilder().WithScheme(harness.Scheme(t, kind.Types)).WithObjects(append([]client.Object{cronTab, old, last, waiting}, pods...)...).Build()
			l := logs{
				cronTabs: &cronTabs{&object.Objects[*stablev1.CronTab]{Client: api, API: &target.API{Namespace: "team"}, Kind: kind}},
				name:     "backup", run: test.run,
				open: func(_ context.Context, pod, container string, _ bool) (io.ReadCloser, error) {
					return io.NopCloser(strings.NewReader(pod + " " + container + "\n")), nil
				},
			}
			var out strings.Builder
			err := l.print(t.Context(), &out)
			if out.String() != test.out || (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("%q, %v", out.String(), err)
			}
		})
	}
}

// To follow, the logs of later attempts are printed as they start, until the run has finished, even when another run starts.
func TestFollowLogs(t *testing.T) {
	cronTab := backup(func(c *stablev1.CronTab) { c.UID = "mine" })
	job := jobOf(cronTab, "backup-1", "2026-11-25T12:00:02Z", nil)
	job.UID = "job"
	api := fake.NewClientBuilder().WithScheme(harness.Scheme(t, kind.Types)).WithObjects(cronTab, job, attemptOf(job, "a", first, "main")).Build()
	l := logs{
		cronTabs: &cronTabs{&object.Objects[*stablev1.CronTab]{Client: api, API: &target.API{Namespace: "team"}, Kind: kind}},
		name:     "backup", follow: true,
	}
	l.open = func(ctx context.Context, pod, _ string, follow bool) (io.ReadCloser, error) {
		if !follow {
			t.Error("the log is not followed")
		}
		if pod == "a" { // while it is read, it fails: there are a second attempt, and another run
			other := jobOf(cronTab, "backup-2", "2026-11-25T13:00:00Z", nil)
			for _, object := range []client.Object{attemptOf(job, "b", second, "main"), other} {
				if err := api.Create(ctx, object); err != nil {
					t.Error(err)
				}
			}
		} else {
			job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: *timeOf(second)}}
			if err := api.Status().Update(ctx, job); err != nil {
				t.Error(err)
			}
		}
		return io.NopCloser(strings.NewReader(pod + "\n")), nil
	}
	var out strings.Builder
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := l.print(ctx, &out); err != nil {
		t.Fatal(err)
	}
	if want := "a\n==> Pod b, container main <==\nb\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
