package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RunResult is the result of a run: Succeeded or Failed.
type RunResult string

// The values of RunResult.
const (
	RunSucceeded RunResult = "Succeeded"
	RunFailed    RunResult = "Failed"
)

// FinishedRun is a run whose Job has finished.
type FinishedRun struct {
	// Name of the Job. The Job may have been deleted since.
	JobName string `json:"jobName"`

	// Result of the run: Succeeded or Failed.
	Result RunResult `json:"result"`

	// Time at which the Job succeeded or failed.
	FinishTime metav1.Time `json:"finishTime"`

	// Reason of the failure according to the Job, such as BackoffLimitExceeded.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Exit code of the container that failed last. Unset if no container failed, or if
	// its Pod was deleted first.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`
}

// FailureStreak has the runs that failed in a row.
type FailureStreak struct {
	// The failed runs, earliest first, up to spec.suspendAfterFailures.
	// +optional
	// +listType=map
	// +listMapKey=jobName
	Runs []FailedRun `json:"runs,omitempty"`

	// Failures up to this time do not count: the last change of the spec.
	Since metav1.Time `json:"since"`

	// Hash of the spec without runRequestedAt. If it changes, the count starts again.
	SpecHash string `json:"specHash"`
}

// FailedRun is a run whose Job has failed.
type FailedRun struct {
	// Name of the Job. The Job may have been deleted since.
	JobName string `json:"jobName"`

	// Time at which the Job failed.
	FinishTime metav1.Time `json:"finishTime"`
}
