package crontab

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// jobOf returns a Job of a CronTab that started at a time.
func jobOf(owner *stablev1.CronTab, name, start string, annotations map[string]string, conditions ...batchv1.JobCondition) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, CreationTimestamp: *timeOf(start), Labels: map[string]string{stablev1.NameLabel: "backup"}, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, stablev1.SchemeGroupVersion.WithKind("CronTab"))},
		},
		Status: batchv1.JobStatus{Conditions: conditions, Failed: 2},
	}
}

func TestHistory(t *testing.T) {
	cronTab := backup(func(c *stablev1.CronTab) { c.UID = "mine" })
	other := backup(func(c *stablev1.CronTab) { c.UID = "deleted" })
	failed := jobOf(cronTab, "backup-1", "2026-11-25T12:00:02Z", map[string]string{batchv1.CronJobScheduledTimestampAnnotation: first},
		batchv1.JobCondition{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded", LastTransitionTime: *timeOf("2026-11-25T12:01:02Z")})
	failed.UID = "failed"
	demand := jobOf(cronTab, "backup-2", "2026-11-25T13:00:00Z", map[string]string{
		stablev1.RunRequestedAtAnnotation: "2026-11-25T12:59:59Z", stablev1.ParametersAnnotation: `{"region":"eu","level":"1"}`,
	}, batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: *timeOf("2026-11-25T13:00:05Z")})
	demand.UID = "demand"
	running := jobOf(cronTab, "backup-3", "2026-11-25T14:00:00Z", map[string]string{
		batchv1.CronJobScheduledTimestampAnnotation: "2026-11-01T00:00:00Z", stablev1.BackfillRequestedAtAnnotation: first,
	})
	foreign := jobOf(other, "backup-0", first, nil)
	pod := func(name, end string, code int32, of *batchv1.Job) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "team", Name: name, Labels: map[string]string{stablev1.NameLabel: "backup"},
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(of, batchv1.SchemeGroupVersion.WithKind("Job"))},
			},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
				State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: *timeOf(end)}},
			}}},
		}
	}
	api := fake.NewClientBuilder().WithScheme(harness.Scheme(t, kind.Types)).WithObjects(
		cronTab, running, demand, failed, foreign, pod("a", first, 1, failed), pod("b", second, 3, failed), pod("c", second, 1, demand)).Build()
	c := &cronTabs{&object.Objects[*stablev1.CronTab]{Client: api, API: &target.API{Namespace: "team"}, Kind: kind}}
	runs, err := c.history(t.Context(), "backup")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := printHistory(&out, runs, timeOf("2026-11-25T14:00:30Z").Time); err != nil {
		t.Fatal(err)
	}
	want := `TIME                   STARTED BY   LAG   DURATION   RESULT                          EXIT CODE   ATTEMPTS   PARAMETERS          JOB
2026-11-25T12:00:00Z   Schedule     2s    60s        Failed (BackoffLimitExceeded)   3           2          -                   backup-1
2026-11-25T12:59:59Z   OnDemand     1s    5s         Succeeded                       -           2          level=1,region=eu   backup-2
2026-11-01T00:00:00Z   Backfill     -     30s        Running                         -           2          -                   backup-3
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	first := pastRun{
		Time: timeOf(first).Time, StartedBy: bySchedule, Job: "backup-1", StartTime: failed.CreationTimestamp.Time, FinishTime: &timeOf("2026-11-25T12:01:02Z").Time,
		Result: "Failed", Reason: "BackoffLimitExceeded", ExitCode: ptr.To[int32](3), Attempts: 2,
	}
	if diff := cmp.Diff(first, runs[0], cmp.Comparer(time.Time.Equal)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if _, err := c.history(t.Context(), "nothing"); err == nil {
		t.Error("a CronTab that does not exist has a history")
	}
}
