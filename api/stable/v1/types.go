package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	commonv1 "github.com/keelson-dev/keelson/api/common/v1"
)

// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=crontabs,scope=Namespaced,shortName=ct,categories=keelson
// +kubebuilder:printcolumn:name="Schedule",type=string,JSONPath=`.spec['schedule','schedules']`,description="Schedule of the runs"
// +kubebuilder:printcolumn:name="TimeZone",type=string,JSONPath=`.spec.timeZone`,description="Time zone of the schedule; UTC if empty"
// +kubebuilder:printcolumn:name="Suspend",type=boolean,JSONPath=`.spec.suspend`,description="Whether scheduled runs are suspended"
// +kubebuilder:printcolumn:name="Active",type=string,JSONPath=`.status.active[*].name`,description="First Job that has not finished"
// +kubebuilder:printcolumn:name="Last",type=date,JSONPath=`.status.lastScheduleTime`,description="Time since the scheduled time of the last started run"
// +kubebuilder:printcolumn:name="Last Result",type=string,JSONPath=`.status.lastRun.result`,description="Succeeded or Failed: result of the last run that finished"
// +kubebuilder:printcolumn:name="Next",type=string,JSONPath=`.status.nextScheduleTime`,description="Scheduled time of the next run, in UTC"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether runs start as specified"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Last Success",type=date,priority=1,JSONPath=`.status.lastSuccessfulTime`,description="Time since the last completion of a Job"
// +kubebuilder:printcolumn:name="Container",type=string,priority=1,JSONPath=`.spec.jobTemplate..containers[*].name`,description="The first container of the Jobs"
// +kubebuilder:printcolumn:name="Image",type=string,priority=1,JSONPath=`.spec.jobTemplate..containers[*].image`,description="The image of the first container"
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Reason of the condition Ready"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 52",message="metadata.name must have at most 52 characters, because the names of the Jobs begin with it"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.schedule) || !has(self.spec.schedules)",fieldPath=".spec.schedules",message="set either schedule or schedules, not both"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.after) || !has(self.spec.schedule) && !has(self.spec.schedules)",fieldPath=".spec.after",message="set either a schedule or after, not both"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.after) || self.spec.after.all(a, a.crontab != self.metadata.name)",fieldPath=".spec.after",message="a CronTab cannot run after itself"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.after) || has(self.spec.jobTemplate)",fieldPath=".spec.jobTemplate",message="after needs a jobTemplate: a JobTemplateSpec as in a CronJob, or the spec of a pod"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.after) || !has(self.spec.startingDeadlineSeconds)",fieldPath=".spec.startingDeadlineSeconds",message="cannot be combined with after: the run starts when the others have ended"
// +kubebuilder:validation:XValidation:rule="has(self.spec.jobTemplate) || !has(self.spec.schedule) && !has(self.spec.schedules)",fieldPath=".spec.jobTemplate",message="a schedule needs a jobTemplate: a JobTemplateSpec as in a CronJob, or the spec of a pod"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.maxConcurrency) || !has(self.spec.concurrencyPolicy) || self.spec.concurrencyPolicy != 'Replace'",fieldPath=".spec.maxConcurrency",message="cannot be combined with concurrencyPolicy Replace, which has one run at a time"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.notBefore) || !has(self.spec.notAfter) || self.spec.notBefore <= self.spec.notAfter",fieldPath=".spec.notAfter",message="must not be before notBefore"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.parameters) || !has(self.spec.schedule) && !has(self.spec.schedules) && !has(self.spec.after) || self.spec.parameters.all(p, !has(p.required) || !p.required)",fieldPath=".spec.parameters",message="runs that are not on demand have the defaults, so no parameter can be required beside a schedule or after: give it a default instead"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.runRequestedAt) || has(self.status) && has(self.status.lastRunRequestedAt) && (self.spec.runRequestedAt - self.status.lastRunRequestedAt).getSeconds() == 0 || !has(self.spec.runParameters) || self.spec.runParameters.all(k, has(self.spec.parameters) && self.spec.parameters.exists(p, p.name == k && (!has(p.enum) || self.spec.runParameters[k] in p.enum)))",fieldPath=".spec.runParameters",message="each name must be one of spec.parameters, and each value one of the enum of that parameter"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.runRequestedAt) || has(self.status) && has(self.status.lastRunRequestedAt) && (self.spec.runRequestedAt - self.status.lastRunRequestedAt).getSeconds() == 0 || !has(self.spec.parameters) || self.spec.parameters.all(p, !has(p.required) || !p.required || has(self.spec.runParameters) && p.name in self.spec.runParameters && self.spec.runParameters[p.name] != '')",fieldPath=".spec.runParameters",message="a run on demand needs a value for each required parameter of spec.parameters"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.backfill) || has(self.spec.schedule) || has(self.spec.schedules)",fieldPath=".spec.backfill",message="needs a schedule"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.backfill) || !has(self.spec.concurrencyPolicy) || self.spec.concurrencyPolicy != 'Replace'",fieldPath=".spec.backfill",message="cannot be combined with concurrencyPolicy Replace, which would delete its active run"

// CronTab creates Jobs on a schedule. A CronJob manifest becomes a CronTab manifest by
// changing apiVersion and kind.
type CronTab struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata. The name has at most 52 characters.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The schedule and the Job.
	// +optional
	// +kubebuilder:default={}
	Spec CronTabSpec `json:"spec,omitempty"`

	// The observed state. Only the controller writes it.
	// +optional
	Status CronTabStatus `json:"status,omitempty"`
}

// Schedule is a schedule: five fields (minute, hour, day of month, month, day of
// week), six with a leading second, or a nickname such as @daily.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=1024
type Schedule string

// DateRange is a date such as 2026-12-24, or two with a slash between them.
//
// +kubebuilder:validation:MaxLength=21
type DateRange string

// ConcurrencyPolicy determines what happens to a run that is due while another is active.
//
// +kubebuilder:validation:Enum=Allow;Forbid;Replace;Queue
type ConcurrencyPolicy string

const (
	// AllowConcurrent lets runs overlap.
	AllowConcurrent ConcurrencyPolicy = "Allow"
	// ForbidConcurrent starts no run while another is active.
	ForbidConcurrent ConcurrencyPolicy = "Forbid"
	// ReplaceConcurrent deletes the active run first, and waits for the end of its Pods.
	ReplaceConcurrent ConcurrencyPolicy = "Replace"
	// QueueConcurrent queues the run.
	QueueConcurrent ConcurrencyPolicy = "Queue"
)

// MissedRunsPolicy determines what happens to runs that could not start on time.
//
// +kubebuilder:validation:Enum=Latest;All;Skip
type MissedRunsPolicy string

const (
	// LatestMissedRun starts the latest missed run.
	LatestMissedRun MissedRunsPolicy = "Latest"
	// AllMissedRuns starts all missed runs in order.
	AllMissedRuns MissedRunsPolicy = "All"
	// SkipMissedRuns starts no missed runs.
	SkipMissedRuns MissedRunsPolicy = "Skip"
)

// DaylightSaving determines what happens to runs in an hour that is skipped or repeated.
//
// +kubebuilder:validation:Enum=Once;Literal
type DaylightSaving string

const (
	// DaylightSavingOnce starts each run in a skipped or repeated hour once.
	DaylightSavingOnce DaylightSaving = "Once"
	// DaylightSavingLiteral starts no runs in a skipped hour, and each run twice in a repeated one.
	DaylightSavingLiteral DaylightSaving = "Literal"
)

// CronTabSpec is the schedule and the Job of a CronTab.
type CronTabSpec struct {
	// The schedule: five fields as in crontab(5) - minute, hour, day of month, month, day
	// of week - or six with a leading second; @yearly, @monthly, @weekly, @daily,
	// @midnight or @hourly; or "@every 90s", a duration of at least 1s that is counted
	// from the creation of the CronTab. Fields have numbers, names (JAN-DEC, SUN-SAT),
	// lists (1,15), ranges (MON-FRI), steps (*/5), and H, a value that differs from
	// CronTab to CronTab but stays the same for each: "H H(0-5) * * *" is some minute of
	// the night. Sunday is 0 or 7. The day of month can also be L (the last day), L-3, LW
	// or 15W (the nearest weekday), and the day of week 5L (the last Friday) or 2#1 (the
	// first Tuesday of the month). Without a schedule a CronTab runs on demand only.
	// +optional
	Schedule Schedule `json:"schedule,omitempty"`

	// Several schedules instead of one. A time that several of them have in common is
	// one run.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Schedules []Schedule `json:"schedules,omitempty"`

	// Other CronTabs of the namespace, instead of a schedule. A run starts for each time for
	// which all of them have run and ended as their conditions say, whether by schedule, on
	// demand or in a backfill.
	// +optional
	// +listType=map
	// +listMapKey=crontab
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	After []Predecessor `json:"after,omitempty"`

	// Time zone of schedules and dates, a name of the IANA database such as
	// Europe/Berlin. The default is UTC.
	// +optional
	TimeZone commonv1.TimeZone `json:"timeZone,omitempty"`

	// Determines what happens to runs in an hour that is skipped or repeated when the
	// clocks change. Once, as in cronie: a fixed time in the skipped hour runs right after the
	// jump, one in the repeated hour runs once, and schedules whose minute or hour is a
	// wildcard follow real time. Literal: nothing runs in the skipped hour, and
	// everything runs twice in the repeated one.
	// +optional
	// +kubebuilder:default=Once
	DaylightSaving DaylightSaving `json:"daylightSaving,omitempty"`

	// Maximum delay of a run to spread the load, such as 10m; at most 24h. The delay is
	// the same for the same CronTab and time, and ends before the next time. Names and
	// status use the time of the schedule.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]{1,6}(s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('24h')",message="must be at most 24h"
	Jitter *metav1.Duration `json:"jitter,omitempty"`

	// No run is scheduled before this time.
	// +optional
	NotBefore *metav1.Time `json:"notBefore,omitempty"`

	// No run is scheduled after this time.
	// +optional
	NotAfter *metav1.Time `json:"notAfter,omitempty"`

	// Dates without runs, in timeZone: single ones (2026-12-24), or ranges with both ends
	// included (2026-12-24/2027-01-01).
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=366
	ExcludeDates []DateRange `json:"excludeDates,omitempty"`

	// While true, no scheduled runs start. Running Jobs continue, and runs on demand
	// start. Runs that were due in the meantime are not started afterwards.
	// +optional
	// +kubebuilder:default=false
	Suspend *bool `json:"suspend,omitempty"`

	// Number of runs that have to fail in a row for scheduled runs to stop. Ready is
	// False then. They start again after a change of the spec, a run on demand that
	// succeeds, or keelson crontab resume. The default is never to stop.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	SuspendAfterFailures *int32 `json:"suspendAfterFailures,omitempty"`

	// Time of a request to start scheduled runs again that suspendAfterFailures has
	// stopped, usually the current time. Each new value is such a request.
	// +optional
	ResumeRequestedAt *metav1.Time `json:"resumeRequestedAt,omitempty"`

	// Time of a request to run once, usually the current time. Each new value starts one
	// run as soon as concurrencyPolicy allows, also while suspend is true. Removing the
	// field withdraws a request whose run has not started.
	// +optional
	RunRequestedAt *metav1.Time `json:"runRequestedAt,omitempty"`

	// Values of the parameters for the run that runRequestedAt requests, by name. They
	// stay until the next request sets others. All other runs have the defaults.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	RunParameters map[string]ParameterValue `json:"runParameters,omitempty"`

	// Request to run scheduled times of the past, once. Removing the field cancels it;
	// active runs continue.
	// +optional
	Backfill *Backfill `json:"backfill,omitempty"`

	// Deadline in seconds for starting a run after its time. A run that could not start
	// in time counts as missed and is never started. The default is no deadline.
	// +optional
	// +kubebuilder:validation:Minimum=0
	StartingDeadlineSeconds *int64 `json:"startingDeadlineSeconds,omitempty"`

	// Determines what happens to runs that could not start on time because the controller
	// was not running or the API was not available. Latest: the latest one is started, as
	// with a CronJob. All: all are started in order, up to maxMissedRuns. Skip: none.
	// +optional
	// +kubebuilder:default=Latest
	MissedRuns MissedRunsPolicy `json:"missedRuns,omitempty"`

	// Maximum number of missed runs that are started with missedRuns All: the latest ones.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxMissedRuns *int32 `json:"maxMissedRuns,omitempty"`

	// Determines what happens to a run that is due while another is active. Allow: it
	// starts. Forbid: it does not start; after the active run, missedRuns applies.
	// Replace: the active Job is deleted, and the run starts after its Pods have ended.
	// Queue: it is queued; up to 100 runs wait.
	// +optional
	// +kubebuilder:default=Allow
	ConcurrencyPolicy ConcurrencyPolicy `json:"concurrencyPolicy,omitempty"`

	// Maximum number of active runs. The default is no limit for Allow, and 1 for Forbid
	// and Queue.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxConcurrency *int32 `json:"maxConcurrency,omitempty"`

	// Number of succeeded Jobs to keep; older ones are deleted.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	SuccessfulJobsHistoryLimit *int32 `json:"successfulJobsHistoryLimit,omitempty"`

	// Number of failed Jobs to keep; older ones are deleted.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	FailedJobsHistoryLimit *int32 `json:"failedJobsHistoryLimit,omitempty"`

	// URL to request when runs start and end, for a service that reports silence. Each
	// event of a run is sent at most once.
	// +optional
	Ping *Ping `json:"ping,omitempty"`

	// Parameters of a run: environment variables of all its containers. Those of the
	// template may refer to them.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Parameters []Parameter `json:"parameters,omitempty"`

	// Template of the Job of each run. Either a JobTemplateSpec as in a CronJob (metadata
	// and spec), or, in short form, the spec of the Pod (containers, restartPolicy and so
	// on). The restartPolicy is Never, the default, or OnFailure. kubectl explain job.spec
	// describes the fields below.
	// +optional
	JobTemplate *JobTemplate `json:"jobTemplate,omitempty"`
}

// CronTabStatus is the observed state of a CronTab.
type CronTabStatus struct {
	// The Jobs that have not finished.
	// +optional
	// +listType=atomic
	Active []corev1.ObjectReference `json:"active,omitempty"`

	// Scheduled time of the last started run.
	// +optional
	LastScheduleTime *metav1.Time `json:"lastScheduleTime,omitempty"`

	// Time of the last completion of a Job.
	// +optional
	LastSuccessfulTime *metav1.Time `json:"lastSuccessfulTime,omitempty"`

	// The last run that finished, and how.
	// +optional
	LastRun *FinishedRun `json:"lastRun,omitempty"`

	// Scheduled time of the next run. Unset while the CronTab is suspended, or if there
	// is no next run.
	// +optional
	NextScheduleTime *metav1.Time `json:"nextScheduleTime,omitempty"`

	// Value of spec.runRequestedAt for the last run on demand.
	// +optional
	LastRunRequestedAt *metav1.Time `json:"lastRunRequestedAt,omitempty"`

	// Number of missed runs since the creation of the CronTab: runs that were due, were
	// not started, and will not be started.
	// +optional
	MissedRuns int64 `json:"missedRuns,omitempty"`

	// Progress of the last backfill.
	// +optional
	Backfill *BackfillStatus `json:"backfill,omitempty"`

	// Runs that failed in a row, with spec.suspendAfterFailures.
	// +optional
	FailureStreak *FailureStreak `json:"failureStreak,omitempty"`

	// Scheduled times of the queued runs, earliest first.
	// +optional
	// +listType=atomic
	QueuedTimes []metav1.Time `json:"queuedTimes,omitempty"`

	// All scheduled times up to this one were processed: their runs were started, are in
	// queuedTimes, or were missed.
	// +optional
	ScheduledUntil *metav1.Time `json:"scheduledUntil,omitempty"`

	// UIDs of the Jobs of the CronTabs in spec.after that were processed: the run that
	// follows them was queued, or there is none.
	// +optional
	// +listType=set
	FollowedJobs []types.UID `json:"followedJobs,omitempty"`

	// Hash of the fields of the spec that determine the scheduled times. If they change,
	// scheduledUntil becomes the time of the change.
	// +optional
	ScheduleHash string `json:"scheduleHash,omitempty"`

	// Generation of the CronTab that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions of the CronTab. Ready is True if its runs start as specified.
	// ScheduleValid is True if schedules, time zone and dates are valid.
	// LastRunSucceeded is True if the Job of lastRun succeeded. RunsStuck is True if an
	// active run waits for its Pods, for example for an image that cannot be pulled.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// +kubebuilder:object:root=true

// CronTabList is a list of CronTabs.
type CronTabList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// The CronTabs.
	Items []CronTab `json:"items"`
}
