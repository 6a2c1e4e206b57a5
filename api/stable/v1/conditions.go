package v1

// RunRequestedAtAnnotation of the Job of a run on demand has the value of
// spec.runRequestedAt that requested the run.
const RunRequestedAtAnnotation = "crontab.stable.example.com/run-requested-at"

// BackfillRequestedAtAnnotation of the Job of a backfill has the value of
// spec.backfill.requestedAt that requested it.
const BackfillRequestedAtAnnotation = "crontab.stable.example.com/backfill-requested-at"

// FollowsAnnotation of a Job has the UIDs of the Jobs of the CronTabs in spec.after that
// its run follows, separated by commas, perhaps with others that were followed before.
const FollowsAnnotation = "crontab.stable.example.com/follows"

// ParametersAnnotation of a Job has the values of spec.parameters in its run, as JSON.
const ParametersAnnotation = "crontab.stable.example.com/parameters"

// TTLAnnotation of a Job holds the ttlSecondsAfterFinished of its template until the
// run is recorded in the status of the CronTab; then it becomes the Job's own.
const TTLAnnotation = "crontab.stable.example.com/ttl-seconds-after-finished"

// NameLabel of the Jobs of a CronTab and of their Pods has the name of the CronTab.
const NameLabel = "crontab.stable.example.com/name"

// The condition types of a CronTab.
const (
	// ConditionReady is True if runs start as specified.
	ConditionReady = "Ready"
	// ConditionScheduleValid is True if schedules, time zone and dates are valid.
	ConditionScheduleValid = "ScheduleValid"
	// ConditionLastRunSucceeded is True if the last run that finished succeeded, and
	// Unknown if none has finished.
	ConditionLastRunSucceeded = "LastRunSucceeded"
	// ConditionRunsStuck is True if an active run waits for its Pods, for example for an
	// image that cannot be pulled, or if a deleted Job does not go away.
	ConditionRunsStuck = "RunsStuck"
)

// The reasons of the conditions; events of a CronTab have the same reasons.
const (
	// ReasonScheduled: Ready; there is a next run.
	ReasonScheduled = "Scheduled"
	// ReasonSuspended: Ready; spec.suspend is true, so no scheduled runs start.
	ReasonSuspended = "Suspended"
	// ReasonTooManyFailures: as many runs in a row have failed as spec.suspendAfterFailures
	// allows, so no scheduled runs start.
	ReasonTooManyFailures = "TooManyFailures"
	// ReasonNoSchedule: there is no schedule. With a jobTemplate the CronTab is Ready
	// and runs on demand; without, it is not.
	ReasonNoSchedule = "NoSchedule"
	// ReasonPredecessorNotFound: a CronTab in spec.after does not exist.
	ReasonPredecessorNotFound = "PredecessorNotFound"
	// ReasonCircular: a CronTab in spec.after runs after this one.
	ReasonCircular = "Circular"
	// ReasonTooManyMissedRuns: Ready; more runs were missed than spec.maxMissedRuns, or
	// more are due than can be queued. Only the latest are started.
	ReasonTooManyMissedRuns = "TooManyMissedRuns"
	// ReasonValid: ScheduleValid; schedules, time zone and dates are valid.
	ReasonValid = "Valid"
	// ReasonInvalidSchedule: a schedule or date is invalid; see the message.
	ReasonInvalidSchedule = "InvalidSchedule"
	// ReasonUnknownTimeZone: spec.timeZone is not in the IANA database.
	ReasonUnknownTimeZone = "UnknownTimeZone"
	// ReasonEnded: the schedule has no further run, for example because spec.notAfter has passed.
	ReasonEnded = "Ended"
	// ReasonNeverRuns: no time matches the schedule.
	ReasonNeverRuns = "NeverRuns"
	// ReasonClockBehind: the last run is in the future, because the clock was set
	// back. No runs start until the clock has caught up. Suspend and resume to restart.
	ReasonClockBehind = "ClockBehind"
	// ReasonJobNameTaken: a Job with the name of the run has another owner. The run
	// starts after the deletion of that Job.
	ReasonJobNameTaken = "JobNameTaken"
	// ReasonJobRejected: the API rejected the Job; the message has the cause. It is
	// retried. Change the template, or the policy or quota that rejected it.
	ReasonJobRejected = "JobRejected"
	// ReasonInvalidParameters: a run on demand has a parameter that spec.parameters does not
	// have or allow, or none for one that is required; or a container sets the variable of
	// a parameter.
	ReasonInvalidParameters = "InvalidParameters"
	// ReasonInvalidBackfill: the range of spec.backfill has too many scheduled times.
	ReasonInvalidBackfill = "InvalidBackfill"
	// ReasonJobWriteFailed: the Job could not be created; it is retried.
	ReasonJobWriteFailed = "JobWriteFailed"
	// ReasonNoRunFinished: LastRunSucceeded; no run has finished yet.
	ReasonNoRunFinished = "NoRunFinished"
	// ReasonJobSucceeded: LastRunSucceeded; the Job succeeded.
	ReasonJobSucceeded = "JobSucceeded"
	// ReasonJobFailed: LastRunSucceeded; the Job failed. The message has its name, the
	// reason, the exit code, and the command that prints its logs.
	ReasonJobFailed = "JobFailed"
	// ReasonNoRunStuck: RunsStuck; no run waits for its Pods longer than usual.
	ReasonNoRunStuck = "NoRunStuck"
	// ReasonPodsNotReady: RunsStuck; a run has had no ready Pod for a minute. The message
	// has the cause.
	ReasonPodsNotReady = "PodsNotReady"
	// ReasonJobNotDeleted: RunsStuck; a Job has been being deleted for a minute, and counts
	// toward the concurrency limit. The message says what holds it.
	ReasonJobNotDeleted = "JobNotDeleted"
)

// The reasons of events that have no condition of their own. Events that a CronJob
// also has use its reasons.
const (
	// ReasonSuccessfulCreate: a Job was created for a run on demand, a missed run or a
	// queued run. Runs on time have no event.
	ReasonSuccessfulCreate = "SuccessfulCreate"
	// ReasonSuccessfulDelete: an active Job was deleted to be replaced.
	ReasonSuccessfulDelete = "SuccessfulDelete"
	// ReasonJobAlreadyActive: a run did not start because another is active.
	ReasonJobAlreadyActive = "JobAlreadyActive"
	// ReasonMissSchedule: runs were missed and will not be started.
	ReasonMissSchedule = "MissSchedule"
	// ReasonRunRequestReplaced: a run was requested before an earlier requested run could
	// start. The earlier one will not start.
	ReasonRunRequestReplaced = "RunRequestReplaced"
	// ReasonPingFailed: a request to the URL of spec.ping failed, and is not retried. The
	// message has the cause.
	ReasonPingFailed = "PingFailed"
)
