package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

const (
	// toldStep is by how many points the use of something has to move to be told.
	toldStep = 5
	// statsTimeout is how long the engine may take to measure one container.
	statsTimeout = 5 * time.Second
	// roomInPercent is how much of a smaller memory what is used now may take.
	roomInPercent = 90
)

// samplePeriod is how often the use of resources is measured. Tests shorten it.
var samplePeriod = 15 * time.Second

// usage is what was measured of a run.
type usage struct {
	run        string
	at         time.Time
	cpuSeconds float64
	last       *backend.Usage
	told       backend.Usage
}

// sample measures all machines now and then, until the driver is closed.
func (d *Driver) sample() {
	ticker := time.NewTicker(samplePeriod)
	defer ticker.Stop()
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-ticker.C:
		}
		ids, err := d.identities(d.ctx)
		if err != nil {
			continue // who listens to the engine says so
		}
		for _, id := range ids {
			if d.measure(id) {
				d.tell(id)
			}
		}
	}
}

// measure measures a machine that is on, and returns whether somebody should know.
func (d *Driver) measure(id backend.Identity) bool {
	ctx, cancel := context.WithTimeout(d.ctx, statsTimeout)
	defer cancel()
	m, box, err := d.find(ctx, id)
	if err != nil || !isOn(box) {
		return false
	}
	stats, err := d.stats(ctx, containerName(id.UID))
	if err != nil {
		return false // it has just ended
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.usage.add(runOf(box.State), timeOf(box.State.StartedAt), &stats, box.HostConfig)
}

// add takes a measurement into account, and returns whether somebody should know.
func (u *usage) add(run string, startedAt time.Time, stats *container.StatsResponse, host *container.HostConfig) bool {
	if u.run != run {
		*u = usage{run: run, at: startedAt}
	}
	seconds := time.Duration(stats.CPUStats.CPUUsage.TotalUsage).Seconds()
	used := inUse(&stats.MemoryStats)
	now := backend.Usage{CPUSeconds: seconds, ResidentBytes: int64(stats.MemoryStats.Usage), GuestBytes: used}
	processors := float64(host.NanoCPUs) / 1e9
	if elapsed := stats.Read.Sub(u.at).Seconds() * processors; elapsed > 0 {
		now.CPU = min(100, max(0, 100*(seconds-u.cpuSeconds)/elapsed))
	}
	if host.Memory > 0 {
		now.Memory = min(100, 100*float64(used)/float64(host.Memory))
	}
	far := func(a, b float64) bool { return math.Abs(math.Round(a)-math.Round(b)) >= toldStep } // as the status has them
	tell := u.last == nil || far(now.CPU, u.told.CPU) || far(now.Memory, u.told.Memory)
	u.at, u.cpuSeconds, u.last = stats.Read, seconds, &now
	if tell {
		u.told = now
	}
	return tell
}

// inUse returns the memory of a container that cannot be had back just so: without files
// that were read and not used lately. Version 1 and 2 of cgroups call that differently.
func inUse(stats *container.MemoryStats) int64 {
	for _, name := range []string{"total_inactive_file", "inactive_file"} {
		if idle, found := stats.Stats[name]; found && idle <= stats.Usage {
			return int64(stats.Usage - idle)
		}
	}
	return int64(stats.Usage)
}

// stats measures a container.
func (d *Driver) stats(ctx context.Context, name string) (container.StatsResponse, error) {
	var stats container.StatsResponse
	answer, err := d.engine.ContainerStats(ctx, name, client.ContainerStatsOptions{})
	if err == nil {
		err = errors.Join(json.NewDecoder(answer.Body).Decode(&stats), answer.Body.Close())
	}
	if err != nil {
		return stats, fmt.Errorf("measure the container %s: %w", name, err)
	}
	return stats, nil
}

// fits reports whether what a machine uses now has room in the memory that it is to have.
func (d *Driver) fits(ctx context.Context, machine backend.Machine) bool {
	stats, err := d.stats(ctx, containerName(machine.UID))
	return err == nil && inUse(&stats.MemoryStats) <= machine.MemoryBytes/100*roomInPercent
}
