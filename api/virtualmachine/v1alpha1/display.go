package v1alpha1

// Display is the display of a machine.
type Display struct {
	// Type of the display: None or VGA, a VGA card with a VNC server, which the access API
	// reaches.
	// +required
	Type DisplayType `json:"type"`
}

// DisplayType is the type of a display.
// +kubebuilder:validation:Enum=None;VGA
type DisplayType string

// The values of DisplayType.
const (
	// DisplayNone is no display. The machine has a serial console.
	DisplayNone DisplayType = "None"
	// DisplayVGA is a VGA card.
	DisplayVGA DisplayType = "VGA"
)
