package virtualmachine

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

const (
	// UsageAge is how long samples are kept.
	UsageAge = time.Hour
	// maxUsageSamples is how many samples a machine has. Each takes 40 bytes.
	maxUsageSamples = int(UsageAge / backend.UsageInterval)
	// MaxUsageMachines is how many machines have samples: at most 40 MB.
	MaxUsageMachines = 4096
)

// UsageHistory keeps the usage of machines of the last hour in memory. It takes what the drivers have measured anyway.
type UsageHistory struct {
	drivers *Drivers
	clock   clock.WithTicker

	mu       sync.Mutex
	machines map[types.UID]*usageSeries
}

// usageSeries are the samples of a machine.
type usageSeries struct {
	// last is the last measurement.
	last    backend.Usage
	samples []backend.UsageSample
}

// NewUsageHistory returns an empty history. It is filled while Start runs.
func NewUsageHistory(drivers *Drivers, clock clock.WithTicker) *UsageHistory {
	return &UsageHistory{drivers: drivers, clock: clock, machines: map[types.UID]*usageSeries{}}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*UsageHistory) NeedLeaderElection() bool { return true }

// Start takes samples until the context ends.
func (h *UsageHistory) Start(ctx context.Context) error {
	ticker := h.clock.NewTicker(backend.UsageInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
		h.sample(ctx)
	}
}

// sample takes a sample of all machines.
func (h *UsageHistory) sample(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	var servers []backend.Server
	isComplete := true
	for _, driver := range h.drivers.alreadyOpen() {
		found, err := driver.List(ctx)
		if err != nil {
			isComplete = false // the conditions report it
			continue
		}
		servers = append(servers, found...)
	}
	h.record(servers, isComplete, h.clock.Now())
}

// record adds the last measurements of servers. Those that are not there any more are dropped, if the list is complete.
func (h *UsageHistory) record(servers []backend.Server, isComplete bool, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	present := map[types.UID]bool{}
	for i := range servers {
		present[servers[i].UID] = true
	}
	for uid, series := range h.machines {
		series.expire(now)
		if isComplete && !present[uid] || len(series.samples) == 0 {
			delete(h.machines, uid)
		}
	}
	for i := range servers {
		uid, usage := servers[i].UID, servers[i].Usage
		if usage == nil || usage.At.IsZero() {
			continue
		}
		series := h.machines[uid]
		if series == nil {
			if len(h.machines) >= MaxUsageMachines {
				continue
			}
			series = &usageSeries{}
			h.machines[uid] = series
		}
		series.add(*usage)
	}
}

// add adds a measurement, unless it is there already.
func (s *usageSeries) add(now backend.Usage) {
	if len(s.samples) > 0 && !now.At.After(s.last.At) {
		return
	}
	sample := newUsageSample(&s.last, &now)
	s.last = now
	if len(s.samples) >= maxUsageSamples {
		copy(s.samples, s.samples[1:])
		s.samples[len(s.samples)-1] = sample
		return
	}
	s.samples = append(s.samples, sample)
}

// expire removes samples that are too old.
func (s *usageSeries) expire(now time.Time) {
	oldest := now.Add(-UsageAge).UnixMilli()
	first := 0
	for first < len(s.samples) && s.samples[first].UnixMilli < oldest {
		first++
	}
	s.samples = slices.Delete(s.samples, 0, first)
}

// newUsageSample returns the sample for a measurement. The one before is zero if there is none.
func newUsageSample(before, now *backend.Usage) backend.UsageSample {
	unknown := float32(math.NaN())
	sample := backend.UsageSample{
		UnixMilli: now.At.UnixMilli(), CPUPercent: float32(now.CPU), MemoryPercent: float32(now.Memory),
		ResidentBytes: float32(now.ResidentBytes), GuestBytes: float32(now.GuestBytes),
		DiskRead: unknown, DiskWritten: unknown, NetworkReceived: unknown, NetworkTransmitted: unknown,
	}
	if now.CPU < 0 {
		sample.CPUPercent, sample.MemoryPercent = unknown, unknown
	}
	if now.GuestBytes == 0 {
		sample.GuestBytes = unknown
	}
	elapsed := now.At.Sub(before.At).Seconds()
	// A run that is new begins to count at zero, and so does a network that was restarted.
	rate := func(was, is uint64) float32 {
		if is < was || elapsed <= 0 {
			return unknown
		}
		return float32(float64(is-was) / elapsed)
	}
	if was, is := before.Disk, now.Disk; was != nil && is != nil {
		sample.DiskRead, sample.DiskWritten = rate(was.ReadBytes, is.ReadBytes), rate(was.WrittenBytes, is.WrittenBytes)
	}
	if was, is := before.Network, now.Network; was != nil && is != nil {
		sample.NetworkReceived = rate(was.ReceivedBytes, is.ReceivedBytes)
		sample.NetworkTransmitted = rate(was.TransmittedBytes, is.TransmittedBytes)
	}
	return sample
}

// Samples returns the samples of a machine, the oldest first. isKept is false if there are too many machines to keep those of
// this one.
func (h *UsageHistory) Samples(uid types.UID) (samples []backend.UsageSample, isKept bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	series := h.machines[uid]
	if series == nil {
		return nil, len(h.machines) < MaxUsageMachines
	}
	oldest := h.clock.Now().Add(-UsageAge).UnixMilli()
	for _, sample := range series.samples {
		if sample.UnixMilli >= oldest {
			samples = append(samples, sample)
		}
	}
	return samples, true
}
