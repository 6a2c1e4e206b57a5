package v1

// ParameterValue is a value of a parameter. It is visible in the annotations of the Jobs.
//
// +kubebuilder:validation:MaxLength=1024
type ParameterValue string

// +kubebuilder:validation:XValidation:rule="!has(self.required) || !self.required || !has(self.default)",fieldPath=".default",message="a required parameter has no default: a run on demand sets its value"
// +kubebuilder:validation:XValidation:rule="!has(self.enum) || has(self.required) && self.required || (has(self.default) ? self.default : '') in self.enum",fieldPath=".default",message="must be one of enum; without a default, enum must have the empty string"

// Parameter is a value that can differ from run to run.
type Parameter struct {
	// Name of the parameter and of the environment variable. No container of the
	// template may set a variable of that name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_]*$`
	Name string `json:"name"`

	// Value in runs that set no other: scheduled ones, and those on demand without a
	// value. The default is empty.
	// +optional
	Default ParameterValue `json:"default,omitempty"`

	// What the parameter is for.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`

	// The values that are allowed. If it is not set, all are.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Enum []ParameterValue `json:"enum,omitempty"`

	// Whether a run on demand must set a value that is not empty. A CronTab with a
	// schedule cannot have such a parameter.
	// +optional
	Required bool `json:"required,omitempty"`
}
