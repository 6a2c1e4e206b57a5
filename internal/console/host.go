package console

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	"k8s.io/apimachinery/pkg/runtime"

	vmv1alpha1 "github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
)

// hostCapacity is what this host has, and what the machines that are on request of it. Machines in Pods are not
// counted: they request it from nodes.
type hostCapacity struct {
	Name      string  `json:"name"`
	Total     amounts `json:"total"`
	Requested amounts `json:"requested"`
	Machines  int     `json:"machines"`
	Used      amounts `json:"used"`
}

// host measures the use of this host.
type host struct {
	name string
	mu   sync.Mutex
	// Seconds of all processors since the host was started, as of a time.
	at         time.Time
	busy, idle float64
	load       float64 // busy processors in the interval before
}

// minInterval is the shortest time over which the use of processors is measured.
const minInterval = time.Second

// measure returns what the host has and uses now. The use of processors is the mean since the previous call.
func (h *host) measure(now time.Time) (*hostCapacity, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, err
	}
	memory, err := proc.Meminfo()
	if err != nil {
		return nil, err
	}
	stat, err := proc.Stat()
	if err != nil {
		return nil, err
	}
	result := &hostCapacity{Name: h.name}
	result.Total.CPU = float64(len(stat.CPU))
	if memory.MemTotalBytes != nil && memory.MemAvailableBytes != nil {
		result.Total.Memory = float64(*memory.MemTotalBytes)
		result.Used.Memory = float64(*memory.MemTotalBytes - *memory.MemAvailableBytes)
	}
	c := stat.CPUTotal
	result.Used.CPU = h.busyProcessors(now, c.User+c.Nice+c.System+c.IRQ+c.SoftIRQ+c.Steal, c.Idle+c.Iowait, result.Total.CPU)
	return result, nil
}

// busyProcessors returns how many of all processors were busy since the previous call.
func (h *host) busyProcessors(now time.Time, busy, idle, all float64) float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	passed := busy - h.busy + idle - h.idle
	if now.Sub(h.at) >= minInterval && passed > 0 {
		h.load = all * (busy - h.busy) / passed
		h.at, h.busy, h.idle = now, busy, idle
	}
	return h.load
}

// hostCapacity returns the capacity of the host; nil if the console is not for it, or if the user may not list machines.
func (c *Console) hostCapacity(ctx context.Context) *hostCapacity {
	if c.host == nil {
		return nil
	}
	capacity, err := c.host.measure(time.Now())
	if err != nil {
		return nil // it may not read /proc
	}
	machines := "/apis/" + vmv1alpha1.SchemeGroupVersion.String() + "/virtualmachines"
	status := c.each(ctx, machines, "", func() runtime.Object { return new(vmv1alpha1.VirtualMachineList) }, func(object runtime.Object) {
		capacity.add(object.(*vmv1alpha1.VirtualMachine)) //nolint:forcetypeassert // an item of the list
	})
	if status != nil {
		return nil
	}
	return capacity
}

// add adds what a machine requests, if it is on and on this host.
func (h *hostCapacity) add(vm *vmv1alpha1.VirtualMachine) {
	if vm.Status.Server == nil || vm.Status.Host == nil || vm.Status.Host.Name != h.Name {
		return
	}
	switch vm.Status.Server.State {
	case vmv1alpha1.ServerRunning, vmv1alpha1.ServerPaused, vmv1alpha1.ServerStarting, vmv1alpha1.ServerStopping:
		h.Machines++
		h.Requested.CPU += vm.Spec.Resource.CPU.AsApproximateFloat64()
		h.Requested.Memory += vm.Spec.Resource.Memory.AsApproximateFloat64()
	}
}
