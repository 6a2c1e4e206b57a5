package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	commonv1 "github.com/keelson-dev/keelson/api/common/v1"
)

// PowerSchedule says when a machine is put to sleep, and when it wakes. Daylight saving time is handled as in a CronTab.
// +kubebuilder:validation:XValidation:rule="has(self.wake) || has(self.sleep)",message="must have wake, sleep or both"
type PowerSchedule struct {
	// When the machine wakes, in cron format, such as "0 8 * * MON-FRI", as in a CronTab.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Wake string `json:"wake,omitempty"`

	// When the machine is put to sleep, in cron format, such as "0 19 * * *". At a time
	// of both schedules, it wakes.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Sleep string `json:"sleep,omitempty"`

	// IANA time zone of both schedules, such as Europe/Berlin. The default is UTC.
	// +optional
	TimeZone commonv1.TimeZone `json:"timeZone,omitempty"`

	// Ignore both schedules while this is true. A machine that is asleep because of them
	// wakes.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// VirtualMachineIdle says when an idle machine is put to sleep.
type VirtualMachineIdle struct {
	// Time without activity after which the machine is put to sleep, such as 30m; at
	// least 1m. Activity is the use of the processor and the network, connections to the
	// machine, and sessions with it, such as its console.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]{1,6}(s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",message="must be at least 1m"
	SleepAfter metav1.Duration `json:"sleepAfter"`

	// Wake the machine when someone connects to it: to one of its ports, from another
	// machine, or by a session. The connection waits until the machine is awake. The
	// default is true.
	// +optional
	// +kubebuilder:default=true
	WakeOnConnection *bool `json:"wakeOnConnection,omitempty"`
}

// PowerScheduleStatus has the next times of spec.powerSchedule. There are none while it is suspended.
type PowerScheduleStatus struct {
	// Next time at which the machine wakes, unless it is awake.
	// +optional
	NextWakeTime *metav1.Time `json:"nextWakeTime,omitempty"`

	// Next time at which the machine is put to sleep, unless it is asleep.
	// +optional
	NextSleepTime *metav1.Time `json:"nextSleepTime,omitempty"`
}

// HostShutdownPolicy determines what happens to a running machine when its host is shut down.
// +kubebuilder:validation:Enum=Stop;Sleep
type HostShutdownPolicy string

// The values of HostShutdownPolicy.
const (
	// HostShutdownStop shuts the guest down and powers the machine off.
	HostShutdownStop HostShutdownPolicy = "Stop"
	// HostShutdownSleep puts the machine to sleep.
	HostShutdownSleep HostShutdownPolicy = "Sleep"
)
