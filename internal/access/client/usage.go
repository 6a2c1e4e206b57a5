package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// MachineUsageKind is the kind of a MachineUsage; its apiVersion is that of the API.
const MachineUsageKind = "MachineUsage"

// MachineUsage is the usage of a machine in the last hour. Its series have a value for each time in UnixMilliseconds, the
// oldest first. Samples are missing while the machine is off, and from before the start of the manager.
type MachineUsage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	// IntervalSeconds is about the time between two samples.
	IntervalSeconds int `json:"intervalSeconds"`
	// UnixMilliseconds are the times of the samples, in milliseconds since 1970-01-01 UTC.
	UnixMilliseconds []int64 `json:"unixMilliseconds"`
	// CPUPercent and MemoryPercent are in percent of the processors and of the memory of the machine.
	CPUPercent    Series `json:"cpuPercent"`
	MemoryPercent Series `json:"memoryPercent"`
	// ResidentBytes is the memory of the host that the machine uses, GuestMemoryBytes the memory that the guest uses.
	ResidentBytes    Series `json:"residentBytes"`
	GuestMemoryBytes Series `json:"guestMemoryBytes"`
	// The rates are means since the sample before, in bytes per second, of all disks and of the network.
	DiskReadBytesPerSecond           Series `json:"diskReadBytesPerSecond"`
	DiskWrittenBytesPerSecond        Series `json:"diskWrittenBytesPerSecond"`
	NetworkReceivedBytesPerSecond    Series `json:"networkReceivedBytesPerSecond"`
	NetworkTransmittedBytesPerSecond Series `json:"networkTransmittedBytesPerSecond"`
}

// Series are values, NaN if they are not known. In JSON, these are null.
type Series []float64

// MarshalJSON implements json.Marshaler.
func (s Series) MarshalJSON() ([]byte, error) {
	all := make([]*float64, len(s))
	for i, value := range s {
		if !math.IsNaN(value) {
			all[i] = &value
		}
	}
	return json.Marshal(all)
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Series) UnmarshalJSON(raw []byte) error {
	var all []*float64
	if err := json.Unmarshal(raw, &all); err != nil {
		return err
	}
	*s = make(Series, len(all))
	for i, value := range all {
		(*s)[i] = math.NaN()
		if value != nil {
			(*s)[i] = *value
		}
	}
	return nil
}

// ReadUsage returns the usage of a machine. Errors are as those of Dial.
func ReadUsage(ctx context.Context, config *rest.Config, namespace, name string) (*MachineUsage, error) {
	body, err := get(ctx, config, namespace, name, Usage, nil)
	if err != nil {
		return nil, err
	}
	var usage MachineUsage
	err = json.NewDecoder(body).Decode(&usage)
	if err = errors.Join(err, body.Close()); err != nil {
		return nil, fmt.Errorf("read the usage of %s/%s: %w", namespace, name, err)
	}
	return &usage, nil
}
