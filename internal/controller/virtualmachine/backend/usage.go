package backend

import (
	"math"
	"time"
)

// UsageInterval is the interval of measurements of drivers, and of samples.
const UsageInterval = 15 * time.Second

// usageStep is the smallest change, in percentage points, that drivers report.
const usageStep = 5

// UsageSample is the usage of a machine at a moment. Values that are not known are NaN.
type UsageSample struct {
	// UnixMilli is the time of the measurement.
	UnixMilli int64
	// CPUPercent and MemoryPercent are in percent of the machine's resources.
	CPUPercent, MemoryPercent float32
	// ResidentBytes is the memory of the host that the machine uses, GuestBytes the usage that the guest reports.
	ResidentBytes, GuestBytes float32
	// The rates are in bytes per second since the sample before.
	DiskRead, DiskWritten, NetworkReceived, NetworkTransmitted float32
}

// Usage is the resource usage of a server.
type Usage struct {
	// CPU and Memory are in percent of the server's resources. A negative CPU means that
	// both are unknown, for example after a restart of the manager.
	CPU, Memory float64
	// CPUSeconds is the processor time since the run began.
	CPUSeconds float64
	// ResidentBytes is the server's use of the host's memory.
	ResidentBytes int64
	// GuestBytes is the memory usage reported by the guest; 0 if unknown.
	GuestBytes int64
	// At is the time of the measurement.
	At time.Time
	// Disk and Network count what the server has transferred; nil if unknown.
	Disk    *DiskTraffic
	Network *NetworkTraffic
}

// IsFarFrom reports whether a usage is so far from the last reported one that it is reported, too.
func (u *Usage) IsFarFrom(reported *Usage) bool {
	far := func(a, b float64) bool { return math.Abs(math.Round(a)-math.Round(b)) >= usageStep } // rounded as in the status
	return far(u.CPU, reported.CPU) || far(u.Memory, reported.Memory)
}

// DiskTraffic counts what a server has read from its disks and written to them. It may begin at zero again, for example
// when a disk is removed.
type DiskTraffic struct{ ReadBytes, WrittenBytes uint64 }

// NetworkTraffic counts what a server has received and sent. It may begin at zero again, for example when its network is
// restarted.
type NetworkTraffic struct{ ReceivedBytes, TransmittedBytes uint64 }
