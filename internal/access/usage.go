package access

import (
	"math"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/client"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// serveUsage serves the usage of the last hour. It comes from memory, so it is no session.
func (s *Server) serveUsage(w http.ResponseWriter, _ *http.Request, t *target) error {
	samples, isKept := s.options.Usage(t.UID)
	if !isKept {
		return refuse(http.StatusServiceUnavailable, "the manager keeps the usage of a limited number of machines, and VirtualMachine %s/%s "+
			"is not one of them: use its metrics", t.Namespace, t.Name)
	}
	usage := newMachineUsage(samples)
	usage.ObjectMeta = metav1.ObjectMeta{Namespace: t.Namespace, Name: t.Name, UID: t.UID}
	writeJSON(w, http.StatusOK, usage)
	return nil
}

// newMachineUsage returns samples as series.
func newMachineUsage(samples []backend.UsageSample) *client.MachineUsage {
	usage := &client.MachineUsage{
		TypeMeta:         metav1.TypeMeta{APIVersion: groupVersion, Kind: client.MachineUsageKind},
		IntervalSeconds:  int(backend.UsageInterval.Seconds()),
		UnixMilliseconds: make([]int64, 0, len(samples)),
	}
	for i := range samples {
		sample := &samples[i]
		usage.UnixMilliseconds = append(usage.UnixMilliseconds, sample.UnixMilli)
		for _, value := range []struct {
			series *client.Series
			value  float32
			// digits are those behind the point.
			digits int
		}{
			{&usage.CPUPercent, sample.CPUPercent, 1},
			{&usage.MemoryPercent, sample.MemoryPercent, 1},
			{&usage.ResidentBytes, sample.ResidentBytes, 0},
			{&usage.GuestMemoryBytes, sample.GuestBytes, 0},
			{&usage.DiskReadBytesPerSecond, sample.DiskRead, 0},
			{&usage.DiskWrittenBytesPerSecond, sample.DiskWritten, 0},
			{&usage.NetworkReceivedBytesPerSecond, sample.NetworkReceived, 0},
			{&usage.NetworkTransmittedBytesPerSecond, sample.NetworkTransmitted, 0},
		} {
			unit := math.Pow10(value.digits)
			*value.series = append(*value.series, math.Round(float64(value.value)*unit)/unit)
		}
	}
	return usage
}
