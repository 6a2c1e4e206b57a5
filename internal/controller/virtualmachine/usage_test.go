package virtualmachine

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// measured is a server with a measurement.
func measured(uid types.UID, at time.Time, read, received uint64) backend.Server {
	return backend.Server{Identity: backend.Identity{UID: uid}, Usage: &backend.Usage{
		CPU: 50, Memory: 25, ResidentBytes: 1 << 20, At: at, Disk: &backend.DiskTraffic{ReadBytes: read},
		Network: &backend.NetworkTraffic{ReceivedBytes: received},
	}}
}

func TestUsageHistory(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	h := NewUsageHistory(nil, clock)
	first := clock.Now()
	h.record([]backend.Server{measured("1", first, 1000, 500), {Identity: backend.Identity{UID: "off"}}}, true, first)
	h.record([]backend.Server{measured("1", first, 1000, 500)}, true, first) // the driver has measured nothing new
	clock.Step(backend.UsageInterval)
	second := clock.Now()
	h.record([]backend.Server{measured("1", second, 2500, 200)}, true, second) // its network was restarted
	nan := float32(math.NaN())
	sample := backend.UsageSample{
		UnixMilli: first.UnixMilli(), CPUPercent: 50, MemoryPercent: 25, ResidentBytes: 1 << 20, GuestBytes: nan,
		DiskRead: nan, DiskWritten: nan, NetworkReceived: nan, NetworkTransmitted: nan,
	}
	next := sample
	next.UnixMilli, next.DiskRead, next.DiskWritten, next.NetworkTransmitted = second.UnixMilli(), 100, 0, 0
	got, isKept := h.Samples("1")
	if diff := cmp.Diff([]backend.UsageSample{sample, next}, got, cmpopts.EquateNaNs()); diff != "" || !isKept {
		t.Errorf("kept: %v; the samples differ:\n%s", isKept, diff)
	}
	if got, isKept := h.Samples("off"); got != nil || !isKept {
		t.Errorf("a machine that is off has %v, %v", got, isKept)
	}

	h.record(nil, false, second) // a driver did not answer
	if got, _ := h.Samples("1"); len(got) != 2 {
		t.Errorf("the samples of a machine that may exist are dropped: %v", got)
	}
	h.record(nil, true, second)
	if got, _ := h.Samples("1"); got != nil {
		t.Errorf("a machine that is gone has %v", got)
	}
}

// Samples are kept for an hour, of a limited number of machines.
func TestUsageHistoryIsBounded(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	h := NewUsageHistory(nil, clock)
	for range 2 * maxUsageSamples {
		clock.Step(backend.UsageInterval - time.Second)
		h.record([]backend.Server{measured("1", clock.Now(), 0, 0)}, true, clock.Now())
	}
	if got, _ := h.Samples("1"); len(got) != maxUsageSamples || got[len(got)-1].UnixMilli != clock.Now().UnixMilli() {
		t.Errorf("%d samples are kept, up to %v", len(got), got[len(got)-1].UnixMilli)
	}
	clock.Step(UsageAge / 2)
	h.record([]backend.Server{{Identity: backend.Identity{UID: "1"}}}, true, clock.Now()) // off
	if got, _ := h.Samples("1"); len(got) < maxUsageSamples/2-20 || len(got) > maxUsageSamples/2+20 {
		t.Errorf("%d samples are left after half an hour", len(got))
	}
	clock.Step(UsageAge)
	if got, _ := h.Samples("1"); got != nil {
		t.Errorf("%d samples are older than an hour", len(got))
	}
	var servers []backend.Server
	for i := range MaxUsageMachines + 1 {
		servers = append(servers, measured(types.UID(fmt.Sprint("m", i)), clock.Now(), 0, 0))
	}
	h.record(servers, true, clock.Now())
	if _, isKept := h.Samples(servers[MaxUsageMachines].UID); isKept || len(h.machines) != MaxUsageMachines {
		t.Errorf("%d machines are kept", len(h.machines))
	}
}
