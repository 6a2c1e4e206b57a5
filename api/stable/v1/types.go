package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=crontabs,scope=Namespaced,shortName=ct,categories=keelson
// +kubebuilder:printcolumn:name="Schedule",type=string,JSONPath=`.spec['schedule','schedules']`,description="When it runs"
// +kubebuilder:printcolumn:name="TimeZone",type=string,JSONPath=`.spec.timeZone`,description="The time zone of the schedule; UTC if empty"
// +kubebuilder:printcolumn:name="Suspend",type=boolean,JSONPath=`.spec.suspend`,description="Whether scheduled runs are suspended"
// +kubebuilder:printcolumn:name="Active",type=integer,JSONPath=`.status.activeCount`,description="How many Jobs are running"
// +kubebuilder:printcolumn:name="Last",type=date,JSONPath=`.status.lastScheduleTime`,description="How long ago the last run was due"
// +kubebuilder:printcolumn:name="Next",type=string,JSONPath=`.status.nextScheduleTime`,description="When the next run is due"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether it runs as the spec asks"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Last Success",type=date,priority=1,JSONPath=`.status.lastSuccessfulTime`,description="How long ago a Job completed"
// +kubebuilder:printcolumn:name="Container",type=string,priority=1,JSONPath=`.spec.jobTemplate..containers[*].name`,description="The first container of the Jobs"
// +kubebuilder:printcolumn:name="Image",type=string,priority=1,JSONPath=`.spec.jobTemplate..containers[*].image`,description="The image of the first container"
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why the CronTab is ready, or is not"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 52",message="metadata.name must have at most 52 characters, because the names of the Jobs are made from it"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.schedule) || !has(self.spec.schedules)",fieldPath=".spec.schedules",message="set either schedule or schedules, not both"
// +kubebuilder:validation:XValidation:rule="has(self.spec.jobTemplate) || !has(self.spec.schedule) && !has(self.spec.schedules)",fieldPath=".spec.jobTemplate",message="a schedule needs a jobTemplate: a JobTemplateSpec as in a CronJob, or the spec of a pod"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.maxConcurrency) || !has(self.spec.concurrencyPolicy) || self.spec.concurrencyPolicy != 'Replace'",fieldPath=".spec.maxConcurrency",message="cannot be combined with concurrencyPolicy Replace, which has one run at a time"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.notBefore) || !has(self.spec.notAfter) || self.spec.notBefore <= self.spec.notAfter",fieldPath=".spec.notAfter",message="must not be before notBefore"

// CronTab creates Jobs at the times of its schedule. A manifest of a CronJob becomes
// one of a CronTab by changing apiVersion and kind.
type CronTab struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata. The name has at most 52 characters.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// When to run, and what.
	// +optional
	// +kubebuilder:default={}
	Spec CronTabSpec `json:"spec,omitempty"`

	// What ran, what is running, and what comes next. Written by the controller only.
	// +optional
	Status CronTabStatus `json:"status,omitempty"`
}

// Schedule says when to run: five fields (minute, hour, day of month, month, day of
// week), six with a leading second, or a nickname such as @daily.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=1024
type Schedule string

// DateRange is a date such as 2026-12-24, or two with a slash between them.
//
// +kubebuilder:validation:MaxLength=21
// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{4}-[0-9]{2}-[0-9]{2}(/[0-9]{4}-[0-9]{2}-[0-9]{2})?$') && self.split('/').all(d, timestamp(d + 'T00:00:00Z') > timestamp('0001-01-01T00:00:00Z')) && self.split('/')[0] <= self.split('/')[self.split('/').size() - 1]",message="must be a date such as 2026-12-24, or two with a slash between them, the earlier one first"
type DateRange string

// ConcurrencyPolicy says what happens when a run is due while another is active.
//
// +kubebuilder:validation:Enum=Allow;Forbid;Replace;Queue
type ConcurrencyPolicy string

const (
	// AllowConcurrent lets runs overlap.
	AllowConcurrent ConcurrencyPolicy = "Allow"
	// ForbidConcurrent starts no run while another is active.
	ForbidConcurrent ConcurrencyPolicy = "Forbid"
	// ReplaceConcurrent deletes the active run first, and waits until its pods are gone.
	ReplaceConcurrent ConcurrencyPolicy = "Replace"
	// QueueConcurrent lets every run wait for its turn.
	QueueConcurrent ConcurrencyPolicy = "Queue"
)

// MissedRunsPolicy says what happens to runs that could not start at their time.
//
// +kubebuilder:validation:Enum=Latest;All;Skip
type MissedRunsPolicy string

const (
	// LatestMissedRun starts the latest one that was missed.
	LatestMissedRun MissedRunsPolicy = "Latest"
	// AllMissedRuns starts every one that was missed, in order.
	AllMissedRuns MissedRunsPolicy = "All"
	// SkipMissedRuns starts none that was missed.
	SkipMissedRuns MissedRunsPolicy = "Skip"
)

// DaylightSaving says what happens to runs in an hour that is skipped or repeated.
//
// +kubebuilder:validation:Enum=Once;Literal
type DaylightSaving string

const (
	// DaylightSavingOnce runs once what is due in a skipped or repeated hour.
	DaylightSavingOnce DaylightSaving = "Once"
	// DaylightSavingLiteral runs nothing in a skipped hour, and twice in a repeated one.
	DaylightSavingLiteral DaylightSaving = "Literal"
)

// CronTabSpec is when to run, and what.
type CronTabSpec struct {
	// When to run: five fields as in crontab(5) - minute, hour, day of month, month, day
	// of week - or six with a leading second; @yearly, @monthly, @weekly, @daily,
	// @midnight or @hourly; or "@every 90s", a duration of at least 1s that is counted
	// from the creation of the CronTab. Fields have numbers, names (JAN-DEC, SUN-SAT),
	// lists (1,15), ranges (MON-FRI), steps (*/5), and H, a value that differs from
	// CronTab to CronTab but stays the same for each: "H H(0-5) * * *" is some minute of
	// the night. Sunday is 0 or 7. Without a schedule a CronTab runs on demand only.
	// +optional
	Schedule Schedule `json:"schedule,omitempty"`

	// Several schedules instead of one. Times that two of them have in common make one
	// run.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Schedules []Schedule `json:"schedules,omitempty"`

	// The time zone of schedules and dates, a name of the IANA database such as
	// Europe/Berlin. UTC if it is not set.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	TimeZone *string `json:"timeZone,omitempty"`

	// What happens to runs in an hour that is skipped or repeated when the clocks
	// change. Once, as in cronie: a fixed time in the skipped hour runs right after the
	// jump, one in the repeated hour runs once, and schedules whose minute or hour is a
	// wildcard follow real time. Literal: nothing runs in the skipped hour, and
	// everything runs twice in the repeated one.
	// +optional
	// +kubebuilder:default=Once
	DaylightSaving DaylightSaving `json:"daylightSaving,omitempty"`

	// Every run starts up to this many seconds after its time, to spread the load: always
	// the same amount for one CronTab and time. Names and status keep the time of the
	// schedule.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	JitterSeconds int32 `json:"jitterSeconds,omitempty"`

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

	// No scheduled run starts while this is true. Jobs that run already go on, and runs
	// on demand start. When it becomes false, nothing that was due meanwhile is run.
	// +optional
	// +kubebuilder:default=false
	Suspend *bool `json:"suspend,omitempty"`

	// How many seconds after its time a run may still start. A run that could not start
	// within that time counts as missed and is never started. No limit if it is not set.
	// +optional
	// +kubebuilder:validation:Minimum=0
	StartingDeadlineSeconds *int64 `json:"startingDeadlineSeconds,omitempty"`

	// What happens to runs that could not start at their time, because the controller was
	// not running or the API was away. Latest: the latest of them is started, like
	// CronJob. All: every one is started, in order, up to maxMissedRuns. Skip: none.
	// +optional
	// +kubebuilder:default=Latest
	MissedRuns MissedRunsPolicy `json:"missedRuns,omitempty"`

	// How many missed runs are started at most with missedRuns All: the latest ones.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxMissedRuns *int32 `json:"maxMissedRuns,omitempty"`

	// What happens when a run is due while another is active. Allow: it starts. Forbid:
	// it does not start; when the active run has ended, missedRuns decides. Replace: the
	// active Job is deleted, and the run starts when its pods are gone. Queue: it waits
	// for its turn.
	// +optional
	// +kubebuilder:default=Allow
	ConcurrencyPolicy ConcurrencyPolicy `json:"concurrencyPolicy,omitempty"`

	// How many runs may be active at a time. The default is no limit for Allow, and 1 for
	// Forbid and Queue.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxConcurrency *int32 `json:"maxConcurrency,omitempty"`

	// How many Jobs that succeeded are kept; older ones are deleted.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	SuccessfulJobsHistoryLimit *int32 `json:"successfulJobsHistoryLimit,omitempty"`

	// How many Jobs that failed are kept; older ones are deleted.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	FailedJobsHistoryLimit *int32 `json:"failedJobsHistoryLimit,omitempty"`

	// The Job that is created for each run. Either a JobTemplateSpec as in a CronJob
	// (metadata and spec), or, in short, the spec of the pod itself (containers,
	// restartPolicy and so on). The restartPolicy is Never or OnFailure.
	// +optional
	JobTemplate *JobTemplate `json:"jobTemplate,omitempty"`
}

// CronTabStatus is what ran, what is running, and what comes next.
type CronTabStatus struct {
	// The Jobs that have not finished.
	// +optional
	// +listType=atomic
	Active []corev1.ObjectReference `json:"active,omitempty"`

	// How many Jobs have not finished: the length of active.
	// +optional
	ActiveCount int32 `json:"activeCount"`

	// The scheduled time of the last run that was started.
	// +optional
	LastScheduleTime *metav1.Time `json:"lastScheduleTime,omitempty"`

	// When a Job last completed.
	// +optional
	LastSuccessfulTime *metav1.Time `json:"lastSuccessfulTime,omitempty"`

	// When a Job last failed.
	// +optional
	LastFailureTime *metav1.Time `json:"lastFailureTime,omitempty"`

	// The scheduled time of the next run. Not set while the CronTab is suspended, or if
	// there is none.
	// +optional
	NextScheduleTime *metav1.Time `json:"nextScheduleTime,omitempty"`

	// The value of the annotation run-requested-at whose run was started last.
	// +optional
	LastManualRunTime *metav1.Time `json:"lastManualRunTime,omitempty"`

	// How many runs were missed since the CronTab exists: they were due and were not
	// started, and will not be.
	// +optional
	MissedRuns int64 `json:"missedRuns,omitempty"`

	// How many runs wait to be started, those on demand included.
	// +optional
	Queued int32 `json:"queued,omitempty"`

	// The scheduled times of the runs that wait to be started, the earliest first.
	// +optional
	// +listType=atomic
	QueuedTimes []metav1.Time `json:"queuedTimes,omitempty"`

	// Every scheduled time up to this one is decided: it ran, waits in queuedTimes, or
	// was missed. No run is started for it any more unless it waits.
	// +optional
	ScheduledUntil *metav1.Time `json:"scheduledUntil,omitempty"`

	// Stands for the fields of the spec that make the scheduled times. When they change,
	// scheduledUntil becomes the time of the change.
	// +optional
	ScheduleHash string `json:"scheduleHash,omitempty"`

	// Generation of the CronTab that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// The current state of the CronTab. Ready sums it up: it runs as the spec asks.
	// ScheduleValid says whether schedules, time zone and dates are understood.
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
