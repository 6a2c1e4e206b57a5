package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Reprocess determines which scheduled times of a backfill run again.
//
// +kubebuilder:validation:Enum=None;Failed;All
type Reprocess string

const (
	// ReprocessNone runs the times that have no Job.
	ReprocessNone Reprocess = "None"
	// ReprocessFailed also runs the times whose Job has failed.
	ReprocessFailed Reprocess = "Failed"
	// ReprocessAll runs all times.
	ReprocessAll Reprocess = "All"
)

// BackfillOrder is the order in which the runs of a backfill start.
//
// +kubebuilder:validation:Enum=EarliestFirst;LatestFirst
type BackfillOrder string

const (
	// EarliestFirst starts the run of the earliest time first.
	EarliestFirst BackfillOrder = "EarliestFirst"
	// LatestFirst starts the run of the latest time first.
	LatestFirst BackfillOrder = "LatestFirst"
)

// +kubebuilder:validation:XValidation:rule="self.from <= self.to",fieldPath=".to",message="must not be before from"
// +kubebuilder:validation:XValidation:rule="self.requestedAt != oldSelf.requestedAt || self.from == oldSelf.from && self.to == oldSelf.to && self.order == oldSelf.order && self.reprocess == oldSelf.reprocess",message="a backfill is done once: change spec.backfill.requestedAt, too, to request another one"

// Backfill is a request to run scheduled times of the past.
type Backfill struct {
	// Time of the request, usually the current time. Each new value is a backfill of its
	// own, and takes the place of one that has not finished. Times after it are not
	// part of the backfill.
	// +required
	RequestedAt metav1.Time `json:"requestedAt"`

	// First time of the range.
	// +required
	From metav1.Time `json:"from"`

	// Last time of the range.
	// +required
	To metav1.Time `json:"to"`

	// Which times run again whose Job still exists. None: none of them. Failed: those
	// whose Job has failed. All: all of them. Their Jobs are deleted first.
	// +optional
	// +kubebuilder:default=None
	Reprocess Reprocess `json:"reprocess,omitempty"`

	// Maximum number of active runs of the backfill, within concurrencyPolicy and
	// maxConcurrency.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	MaxConcurrency int32 `json:"maxConcurrency,omitempty"`

	// The order of the runs.
	// +optional
	// +kubebuilder:default=EarliestFirst
	Order BackfillOrder `json:"order,omitempty"`
}

// BackfillStatus is the progress of the last backfill.
type BackfillStatus struct {
	// Value of spec.backfill.requestedAt for this backfill.
	RequestedAt metav1.Time `json:"requestedAt"`

	// The last scheduled time whose run has started, or that was skipped, in the order of
	// the backfill.
	// +optional
	ReachedTime *metav1.Time `json:"reachedTime,omitempty"`

	// Number of scheduled times in the range.
	// +optional
	Total int32 `json:"total,omitempty"`

	// Number of scheduled times that are done: their runs have started, or they were
	// skipped.
	// +optional
	Done int32 `json:"done,omitempty"`

	// Time at which all runs of the backfill had finished.
	// +optional
	FinishTime *metav1.Time `json:"finishTime,omitempty"`
}
