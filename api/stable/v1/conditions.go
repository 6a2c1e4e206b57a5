package v1

// RunRequestedAtAnnotation of a CronTab asks for one run on demand; the Job of that run
// has it, too. Its value is a time in RFC 3339. The same value twice is one run.
const RunRequestedAtAnnotation = "crontab.stable.example.com/run-requested-at"

// TTLAnnotation of a Job holds the ttlSecondsAfterFinished of its template until the
// run is recorded in the status of the CronTab; then it becomes the Job's own.
const TTLAnnotation = "crontab.stable.example.com/ttl-seconds-after-finished"

// The condition types of a CronTab.
const (
	// ConditionReady is True when runs happen as the spec asks.
	ConditionReady = "Ready"
	// ConditionScheduleValid is True when schedules, time zone and dates are understood.
	ConditionScheduleValid = "ScheduleValid"
)

// The reasons of the conditions; events of a CronTab carry the same words.
const (
	// ReasonScheduled: Ready; there is a next run.
	ReasonScheduled = "Scheduled"
	// ReasonSuspended: Ready; spec.suspend holds scheduled runs back.
	ReasonSuspended = "Suspended"
	// ReasonNoSchedule: there is no schedule. With a jobTemplate the CronTab is Ready
	// and runs on demand; without, it is not.
	ReasonNoSchedule = "NoSchedule"
	// ReasonTooManyMissedRuns: Ready; more runs were missed than spec.maxMissedRuns, or
	// more wait than can be queued. The latest are started, the others never.
	ReasonTooManyMissedRuns = "TooManyMissedRuns"
	// ReasonValid: ScheduleValid; schedules, time zone and dates are understood.
	ReasonValid = "Valid"
	// ReasonInvalidSchedule: a schedule or date is wrong; the message says where.
	ReasonInvalidSchedule = "InvalidSchedule"
	// ReasonUnknownTimeZone: spec.timeZone is not in the IANA database.
	ReasonUnknownTimeZone = "UnknownTimeZone"
	// ReasonNeverRuns: there is no time left, or never was one, that matches the
	// schedule.
	ReasonNeverRuns = "NeverRuns"
	// ReasonClockBehind: the last run is in the future, because the clock went back.
	// Nothing runs until it has caught up; to suspend and resume begins anew.
	ReasonClockBehind = "ClockBehind"
	// ReasonJobNameTaken: a Job of the run's name belongs to someone else. The run
	// starts when that Job is gone.
	ReasonJobNameTaken = "JobNameTaken"
	// ReasonJobRejected: the API refused the Job; the message has its words. It is tried
	// again: change the template, or the policy or quota that refused it.
	ReasonJobRejected = "JobRejected"
	// ReasonJobWriteFailed: the Job could not be created for now; it is tried again.
	ReasonJobWriteFailed = "JobWriteFailed"
)

// The reasons of events that have no condition of their own. Those that CronJob has,
// too, have its words.
const (
	// ReasonSuccessfulCreate: a Job was created for a run on demand, or for one that had
	// been missed or had waited. Runs on time are no event.
	ReasonSuccessfulCreate = "SuccessfulCreate"
	// ReasonSuccessfulDelete: an active Job was deleted to be replaced.
	ReasonSuccessfulDelete = "SuccessfulDelete"
	// ReasonJobAlreadyActive: a run did not start because another is active.
	ReasonJobAlreadyActive = "JobAlreadyActive"
	// ReasonMissSchedule: runs were missed and will not be started.
	ReasonMissSchedule = "MissSchedule"
	// ReasonJobFailed: a Job failed.
	ReasonJobFailed = "JobFailed"
	// ReasonInvalidRunRequest: the annotation run-requested-at is no time.
	ReasonInvalidRunRequest = "InvalidRunRequest"
)
