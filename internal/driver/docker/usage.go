package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

const (
	// statsTimeout is the response timeout for the measurement of one container.
	statsTimeout = 5 * time.Second
	// roomInPercent is the part of a smaller memory limit that current use may take.
	roomInPercent = 90
)

// samplePeriod is the interval between measurements. Tests shorten it.
var samplePeriod = backend.UsageInterval

// usage is the measured use of resources of a run.
type usage struct {
	run        string
	at         time.Time
	cpuSeconds float64
	last       *backend.Usage
	reported   backend.Usage
}

// sample measures all machines periodically until the driver is closed.
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
			continue // listen logs this
		}
		for _, id := range ids {
			if d.measure(id) {
				d.watcher.Notify(id)
			}
		}
	}
}

// measure measures a running machine, and returns whether the change is worth a report.
func (d *Driver) measure(id backend.Identity) bool {
	ctx, cancel := context.WithTimeout(d.ctx, statsTimeout)
	defer cancel()
	m, ctr, err := d.find(ctx, id)
	if err != nil || !isOn(ctr) {
		return false
	}
	stats, err := d.stats(ctx, containerName(id.UID))
	if err != nil {
		return false // it has just ended
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.usage.add(runOf(ctr.State), timeOf(ctr.State.StartedAt), &stats, ctr.HostConfig)
}

// add adds a measurement, and returns whether the change is worth a report.
func (u *usage) add(run string, startedAt time.Time, stats *container.StatsResponse, host *container.HostConfig) bool {
	if u.run != run {
		*u = usage{run: run, at: startedAt}
	}
	seconds := time.Duration(stats.CPUStats.CPUUsage.TotalUsage).Seconds()
	used := inUse(&stats.MemoryStats)
	now := backend.Usage{CPUSeconds: seconds, ResidentBytes: int64(stats.MemoryStats.Usage), GuestBytes: used, At: stats.Read}
	now.Disk, now.Network = diskTraffic(&stats.BlkioStats), networkTraffic(stats.Networks)
	processors := float64(host.NanoCPUs) / 1e9
	if elapsed := stats.Read.Sub(u.at).Seconds() * processors; elapsed > 0 {
		now.CPU = min(100, max(0, 100*(seconds-u.cpuSeconds)/elapsed))
	}
	if host.Memory > 0 {
		now.Memory = min(100, 100*float64(used)/float64(host.Memory))
	}
	notify := u.last == nil || now.IsFarFrom(&u.reported)
	u.at, u.cpuSeconds, u.last = stats.Read, seconds, &now
	if notify {
		u.reported = now
	}
	return notify
}

// inUse returns the memory of a container that the kernel cannot easily reclaim: without inactive
// file pages. cgroups v1 and v2 name that statistic differently.
func inUse(stats *container.MemoryStats) int64 {
	for _, name := range []string{"total_inactive_file", "inactive_file"} {
		if idle, found := stats.Stats[name]; found && idle <= stats.Usage {
			return int64(stats.Usage - idle)
		}
	}
	return int64(stats.Usage)
}

// diskTraffic returns what a container has read from devices and written to them; nil if the kernel does not count it.
func diskTraffic(stats *container.BlkioStats) *backend.DiskTraffic {
	if len(stats.IoServiceBytesRecursive) == 0 {
		return nil
	}
	var sum backend.DiskTraffic
	for _, entry := range stats.IoServiceBytesRecursive {
		switch strings.ToLower(entry.Op) { // cgroups v1 and v2 differ in it
		case "read":
			sum.ReadBytes += entry.Value
		case "write":
			sum.WrittenBytes += entry.Value
		}
	}
	return &sum
}

// networkTraffic returns what a container has received and sent; nil if it has no network.
func networkTraffic(networks map[string]container.NetworkStats) *backend.NetworkTraffic {
	if len(networks) == 0 {
		return nil
	}
	var sum backend.NetworkTraffic
	for _, network := range networks {
		sum.ReceivedBytes += network.RxBytes
		sum.TransmittedBytes += network.TxBytes
	}
	return &sum
}

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

// fits reports whether a machine's current use fits into its new memory limit.
func (d *Driver) fits(ctx context.Context, machine backend.Machine) bool {
	stats, err := d.stats(ctx, containerName(machine.UID))
	return err == nil && inUse(&stats.MemoryStats) <= machine.MemoryBytes/100*roomInPercent
}
