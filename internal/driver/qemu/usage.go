package qemu

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/machine/owner"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

const (
	// sampleInterval is the interval of usage measurements.
	sampleInterval = backend.UsageInterval
	// clockTicks is the kernel's unit of processor time on every Linux, see time(7).
	clockTicks = 100
)

// cpuTime is the processor time at a moment.
type cpuTime struct {
	at      time.Time
	seconds float64
}

// sampleUsage measures all machines periodically until the driver is closed.
func (d *Driver) sampleUsage() {
	ticker := time.NewTicker(sampleInterval)
	defer ticker.Stop()
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-ticker.C:
		}
		machines := d.all()
		networks := d.measureNetworks(machines)
		var asked sync.WaitGroup
		for _, m := range machines {
			// An unresponsive monitor must not delay other machines.
			asked.Go(func() {
				if m.measure(networks[m.id.UID]) {
					m.notifyChange()
				}
			})
		}
		asked.Wait()
	}
}

// measureNetworks returns the use of their networks by running machines, by UID.
func (d *Driver) measureNetworks(machines []*machine) map[types.UID]*networkUse {
	on := map[string]*namespaceNetwork{}
	for _, m := range machines {
		if !m.isOff() && on[m.id.Namespace] == nil {
			if network := d.networks.find(m.id.Namespace); network != nil {
				on[m.id.Namespace] = network
			}
		}
	}
	ctx, cancel := context.WithTimeout(d.ctx, monitorTimeout)
	defer cancel()
	var mu sync.Mutex
	var asked sync.WaitGroup
	all := map[types.UID]*networkUse{}
	for _, network := range on {
		asked.Go(func() {
			found, err := describeNetwork(ctx, network.dir)
			if err != nil {
				return // the state of its machines has the error
			}
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(all, useOf(&found))
		})
	}
	asked.Wait()
	return all
}

// measure measures a running machine and returns whether to report the change. network is its use of that; nil if it is not known.
func (m *machine) measure(network *networkUse) bool {
	conn, _ := m.monitor() // it may not answer
	waits := m.state().Agent == owner.AgentWaiting
	m.mu.Lock()
	before, started, boot := m.cpuSeen, *m.startedWith(), m.def.BootMemory
	run, pid, startedAt, found := m.run, 0, m.startedAt, m.attached
	// The measurement at the guest's first response stays for a whole period. The guest is still
	// booting, and each intermediate figure would be written to the API.
	fresh := m.usage != nil && !waits && time.Since(before.at) < sampleInterval*9/10
	if m.proc != nil {
		pid = m.proc.PID()
	}
	m.mu.Unlock()
	if run == "" || pid == 0 || fresh {
		return false
	}
	seconds, resident, err := readProcess(pid)
	if err != nil {
		return false // it has just ended
	}
	now := cpuTime{at: time.Now(), seconds: seconds}
	usage := backend.Usage{CPUSeconds: seconds, ResidentBytes: resident, At: now.at, Disk: m.queryDisks(conn)}
	if network != nil {
		usage.Network = &network.NetworkTraffic
	}
	switch {
	case !before.at.IsZero():
	case found:
		// The current rate is unknown until the next measurement.
		before, usage.CPU = now, -1
	default:
		before.at = startedAt
	}
	if elapsed := now.at.Sub(before.at).Seconds() * float64(vcpus(&started)); elapsed > 0 {
		usage.CPU = min(100, 100*(seconds-before.seconds)/elapsed)
	}
	total := started.MemoryBytes
	usage.Memory = min(100, 100*float64(resident)/float64(max(total, 1)))
	if used, of := m.queryMemory(conn, maxMemory(&started, cmp.Or(boot, started.MemoryBytes))+qemu.MemoryStep*qemu.MemorySlots); of > 0 {
		usage.GuestBytes = used
		usage.Memory = 100 * float64(used) / float64(of)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.run != run {
		return false
	}
	m.cpuSeen, m.usage = now, &usage
	m.noteUse(look{now.at, seconds, network})
	if usage.CPU < 0 || waits {
		// Usage during the boot is meaningless; it is reported with the first response.
		return false
	}
	if m.reportedUsage.CPUSeconds > 0 && !usage.IsFarFrom(&m.reportedUsage) {
		return false
	}
	m.reportedUsage = usage
	return true
}

// readProcess returns the processor time and the memory of a process.
func readProcess(pid int) (seconds float64, resident int64, err error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	// The name in parentheses may contain anything. After it come the fields of proc_pid_stat(5)
	// from number 3 on: 14 and 15 are the time, 24 is the memory.
	_, rest, _ := strings.Cut(string(raw[strings.LastIndexByte(string(raw), ')')+1:]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 22 {
		return 0, 0, fmt.Errorf("/proc/%d/stat has an unknown format", pid)
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	pages, err3 := strconv.ParseInt(fields[21], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return 0, 0, fmt.Errorf("/proc/%d/stat has an unknown format", pid)
	}
	return float64(user+system) / clockTicks, pages * int64(os.Getpagesize()), nil
}

// queryMemory returns the used and total memory that the guest reports, where most is its maximum;
// 0 if it reports none.
func (m *machine) queryMemory(conn *qmp.Client, most int64) (used, total int64) {
	if conn == nil {
		return 0, 0
	}
	ctx, cancel := context.WithTimeout(m.d.ctx, monitorTimeout)
	defer cancel()
	var stats struct {
		Updated int64 `json:"last-update"`
		Stats   struct {
			Total     uint64 `json:"stat-total-memory"`
			Available uint64 `json:"stat-available-memory"`
		} `json:"stats"`
	}
	arguments := map[string]any{"path": qemu.BalloonPath, "property": "guest-stats"}
	if err := conn.Run(ctx, "qom-get", arguments, &stats); err != nil || stats.Updated == 0 {
		// The guest is polled only from the first query on.
		arguments = map[string]any{"path": qemu.BalloonPath, "property": "guest-stats-polling-interval", "value": int(sampleInterval.Seconds())}
		_ = conn.Run(ctx, "qom-set", arguments, nil) // fails without a balloon
		return 0, 0
	}
	return clampMemory(stats.Stats.Total, stats.Stats.Available, most)
}

// queryDisks returns the traffic of all disks since the start of the machine, without that of disks that were removed; nil if
// it is unknown.
func (m *machine) queryDisks(conn *qmp.Client) *backend.DiskTraffic {
	if conn == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(m.d.ctx, monitorTimeout)
	defer cancel()
	var disks []struct {
		Stats struct {
			Read    uint64 `json:"rd_bytes"`
			Written uint64 `json:"wr_bytes"`
		} `json:"stats"`
	}
	if err := conn.Run(ctx, "query-blockstats", nil, &disks); err != nil {
		return nil
	}
	var sum backend.DiskTraffic
	for _, disk := range disks {
		sum.ReadBytes += disk.Stats.Read
		sum.WrittenBytes += disk.Stats.Written
	}
	return &sum
}

// clampMemory returns used and total memory from untrusted figures of the guest: 0 if it reports
// none, or more than the machine can have.
func clampMemory(total, available uint64, most int64) (used, of int64) {
	if most <= 0 || total > uint64(most) || available > total {
		return 0, 0
	}
	return int64(total - available), int64(total) //nolint:gosec // not more than most
}
