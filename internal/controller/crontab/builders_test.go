package crontab

import (
	"encoding/json"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

// noon is a time at which a schedule of full minutes has a run.
var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// at returns the time of a clock on that day.
func at(clock string) time.Time {
	t := must(time.Parse(time.TimeOnly, clock))
	return noon.Truncate(24 * time.Hour).Add(time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute + time.Duration(t.Second())*time.Second)
}

type change func(*stablev1.CronTab)

// newCronTab returns a CronTab that runs every minute, was created at 11:00 and has run
// until 11:59, as the API server has it.
func newCronTab(changes ...change) *stablev1.CronTab {
	cronTab := &stablev1.CronTab{
		ObjectMeta: metav1.ObjectMeta{
			Name: "tick", Namespace: "market", UID: "tick-1", Generation: 2, CreationTimestamp: metav1.NewTime(at("11:00:00")),
		},
		Spec: stablev1.CronTabSpec{
			Schedule:                   "* * * * *",
			DaylightSaving:             stablev1.DaylightSavingOnce,
			MissedRuns:                 stablev1.LatestMissedRun,
			MaxMissedRuns:              ptr.To[int32](10),
			ConcurrencyPolicy:          stablev1.AllowConcurrent,
			Suspend:                    ptr.To(false),
			SuccessfulJobsHistoryLimit: ptr.To[int32](3),
			FailedJobsHistoryLimit:     ptr.To[int32](1),
			JobTemplate: &stablev1.JobTemplate{PodSpec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever,
				Containers:    []corev1.Container{{Name: "main", Image: "busybox"}},
			}},
		},
	}
	for _, change := range changes {
		change(cronTab)
	}
	return cronTab
}

func schedule(text string) change {
	return func(c *stablev1.CronTab) { c.Spec.Schedule = stablev1.Schedule(text) }
}

func policy(policy stablev1.ConcurrencyPolicy) change {
	return func(c *stablev1.CronTab) { c.Spec.ConcurrencyPolicy = policy }
}

func missed(policy stablev1.MissedRunsPolicy, most int32) change {
	return func(c *stablev1.CronTab) { c.Spec.MissedRuns, c.Spec.MaxMissedRuns = policy, &most }
}

func atOnce(most int32) change {
	return func(c *stablev1.CronTab) { c.Spec.MaxConcurrency = &most }
}

func deadline(seconds int64) change {
	return func(c *stablev1.CronTab) { c.Spec.StartingDeadlineSeconds = &seconds }
}

func suspend(c *stablev1.CronTab) { c.Spec.Suspend = ptr.To(true) }

func request(text string) change {
	return func(c *stablev1.CronTab) { c.Annotations = map[string]string{stablev1.RunRequestedAtAnnotation: text} }
}

// jobOf returns the Job of the run of a CronTab at a time, as the API server has it.
func jobOf(cronTab *stablev1.CronTab, nominal time.Time, changes ...func(*batchv1.Job)) *batchv1.Job {
	s := &start{at: nominal, name: jobName(cronTab, nominal)}
	job := newJob(cronTab, must(templateOf(cronTab)), s, time.UTC)
	job.UID = types.UID(fmt.Sprintf("job-%s", nominal.UTC().Format(time.TimeOnly)))
	job.CreationTimestamp = metav1.NewTime(nominal)
	for _, change := range changes {
		change(job)
	}
	return job
}

func ended(condition batchv1.JobConditionType) func(*batchv1.Job) {
	return func(job *batchv1.Job) {
		job.Status.Conditions = []batchv1.JobCondition{{
			Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(job.CreationTimestamp.Add(10 * time.Second)),
		}}
	}
}

func onDemand(job *batchv1.Job) {
	job.Annotations[stablev1.RunRequestedAtAnnotation] = job.Annotations[batchv1.CronJobScheduledTimestampAnnotation]
}

func beingDeleted(job *batchv1.Job) { job.DeletionTimestamp = ptr.To(metav1.NewTime(noon)) }

// see returns the observation of a CronTab that has run until then, with these Jobs. The
// controller has been running since 11:00.
func see(cronTab *stablev1.CronTab, until time.Time, jobs ...*batchv1.Job) observation {
	seen := observation{since: at("11:00:00")}
	seen.times, seen.invalid = newTimetable(cronTab)
	seen.progress = progress{hash: scheduleHash(&cronTab.Spec), until: until, last: until}
	for _, job := range jobs {
		seen.runs = append(seen.runs, runOf(job))
	}
	seen.recorded = seen.progress
	return seen
}

// withoutStatus returns the observation of a CronTab that the controller has never seen.
func withoutStatus(cronTab *stablev1.CronTab) observation {
	seen := see(cronTab, time.Time{})
	seen.progress, seen.recorded = progress{}, progress{}
	return seen
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// asJSON returns value as JSON with indentation.
func asJSON(value any) string { return string(must(json.MarshalIndent(value, "", "  "))) }

// zero is the quantity.
var zero = resource.MustParse("0")
