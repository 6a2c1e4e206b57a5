package v1

// AfterCondition determines how the run of another CronTab has to end.
//
// +kubebuilder:validation:Enum=Succeeded;Failed;Completed
type AfterCondition string

const (
	// AfterSucceeded requires that the run succeeded.
	AfterSucceeded AfterCondition = "Succeeded"
	// AfterFailed requires that the run failed.
	AfterFailed AfterCondition = "Failed"
	// AfterCompleted requires that the run succeeded or failed.
	AfterCompleted AfterCondition = "Completed"
)

// Predecessor is a CronTab whose run has to end before the run for the same time starts.
type Predecessor struct {
	// Name of a CronTab in the same namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=52
	Crontab string `json:"crontab"`

	// How its run has to end. If it ends otherwise, there is no run for that time.
	// +optional
	// +kubebuilder:default=Succeeded
	Condition AfterCondition `json:"condition,omitempty"`
}
