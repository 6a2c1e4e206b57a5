package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

// pending returns the fields in which a running machine differs from its definition.
func (def *definition) pending() []string {
	started := def.Started
	if started == nil {
		return nil
	}
	var fields []string
	add := func(differs bool, field string) {
		if differs {
			fields = append(fields, field)
		}
	}
	add(started.MilliCPU != def.MilliCPU, "resource.cpu")
	add(started.MemoryBytes != def.MemoryBytes, "resource.memory")
	add(started.DiskBytes != def.DiskBytes, "resource.rootDisk")
	add(started.Firmware != def.Firmware, "firmware")
	add(started.CPUModel != def.CPUModel, "cpuModel")
	add(!reflect.DeepEqual(started.CDROM, def.CDROM), "cdrom")
	add(started.Display != def.Display, "display")
	add(def.SeedSum != def.StartedSeedSum, "cloudInit")
	return fields
}

// Reconfigure implements backend.Driver. A running machine gets a larger disk, memory through the
// balloon, and hot-plugged memory and processors as far as there is room and QEMU supports it. Its ports and the rules of
// its network are changed.
// Everything else waits for a restart.
func (d *Driver) Reconfigure(ctx context.Context, machine backend.Machine) error {
	if err := validate(&machine); err != nil {
		return err
	}
	m, err := d.find(machine.Identity)
	if err != nil {
		return err
	}
	m.mu.Lock()
	machine.Image = m.def.Image // the disk was created from it
	isResized := machine.MemoryBytes != m.def.MemoryBytes
	m.mu.Unlock()
	if isResized {
		if err := d.checkMemory(&machine); err != nil {
			return err
		}
	}
	m.mu.Lock()
	m.disks.pending = announceDisks(m.disks.pending, m.def.Disks, machine.Disks)
	m.def.Machine, m.def.SeedSum = machine, seedSum(machine.Seed)
	m.save()
	isOn := m.run != ""
	m.mu.Unlock()
	if isOn {
		if err := m.reconnect(ctx, &machine); err != nil {
			return err
		}
	}
	m.mu.Lock()
	started := *m.startedWith()
	boot, shared := m.def.BootMemory, m.def.MemoryShared
	m.mu.Unlock()
	defer m.notifyChange()
	m.changeDisks()
	if !isOn {
		return nil
	}
	conn, err := m.monitor()
	if err != nil {
		return err
	}
	err = errors.Join(
		resizeDisk(ctx, conn, &started, machine.DiskBytes),
		setMemory(ctx, conn, &started, machine.MemoryBytes, boot, shared),
	)
	if d.plugs {
		err = errors.Join(err, addProcessors(ctx, conn, &started, machine.MilliCPU))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.run != "" {
		m.def.Started = &started
		m.save()
	}
	if err != nil {
		return fmt.Errorf("change machine %s: %w", machine.UID, err)
	}
	return nil
}

// reconnect applies the ports and the rules of the network of a running machine. If the network does not work, they are
// applied as soon as it does.
func (m *machine) reconnect(ctx context.Context, wanted *backend.Machine) error {
	m.mu.Lock()
	started := *m.startedWith()
	changed := !slices.Equal(started.Ports, wanted.Ports) || started.Service != wanted.Service ||
		!equality.Semantic.DeepEqual(started.Network, wanted.Network)
	before := m.def.HostPorts
	m.mu.Unlock()
	if !changed {
		return nil
	}
	published, err := m.d.hostPorts(wanted.Ports, before, started.Ports)
	if err != nil {
		return err
	}
	m.mu.Lock()
	if m.run != "" {
		started.Ports, started.Network, started.Service = wanted.Ports, wanted.Network, wanted.Service
		m.def.Started, m.def.HostPorts = &started, published
		m.save()
	}
	m.mu.Unlock()
	step("network changed")
	_ = m.d.networks.sync(ctx, m.id.Namespace) // an error is in the state of the server
	return nil
}

// resizeDisk grows the disk of a running machine.
func resizeDisk(ctx context.Context, conn *qmp.Client, started *backend.Machine, size int64) error {
	if started.DiskBytes == 0 || size <= started.DiskBytes {
		return nil
	}
	if err := conn.Run(ctx, "block_resize", map[string]any{"node-name": qemu.DiskNode(qemu.RootDisk), "size": size}, nil); err != nil {
		return err
	}
	started.DiskBytes = size
	return nil
}

// setMemory sets the guest's memory. It plugs more if necessary and possible; the rest is in the
// balloon. Memory that is shared with a template is not taken from the guest, because the host would have no more of it.
func setMemory(ctx context.Context, conn *qmp.Client, started *backend.Machine, wanted, boot int64, shared bool) error {
	if boot == 0 {
		return nil
	}
	plugged, err := plugMemory(ctx, conn, min(wanted, maxMemory(started, boot))-boot)
	if err != nil {
		return err
	}
	target := min(wanted, boot+plugged)
	if target == started.MemoryBytes || shared && target < started.MemoryBytes {
		return nil
	}
	if err := conn.Run(ctx, "balloon", map[string]any{"value": target}, nil); err != nil {
		return err
	}
	started.MemoryBytes = target
	return nil
}

// plugMemory plugs memory until wanted is reached or no slot is left, and returns the total.
// Plugged memory stays until the machine is off.
func plugMemory(ctx context.Context, conn *qmp.Client, wanted int64) (int64, error) {
	var devices []struct {
		Data struct{ Size int64 }
	}
	if err := conn.Run(ctx, "query-memory-devices", nil, &devices); err != nil {
		return 0, err
	}
	var plugged int64
	for _, device := range devices {
		plugged += device.Data.Size
	}
	missing := wanted - plugged
	if missing <= 0 || len(devices) >= qemu.MemorySlots {
		return plugged, nil
	}
	size := (missing + qemu.MemoryStep - 1) / qemu.MemoryStep * qemu.MemoryStep
	id := fmt.Sprintf("memory-%d", len(devices))
	_ = conn.Run(ctx, "object-del", map[string]any{"id": id}, nil) // left behind by a manager that was killed here
	if err := conn.Run(ctx, "object-add", map[string]any{"qom-type": "memory-backend-ram", "id": id, "size": size}, nil); err != nil {
		return plugged, err
	}
	err := conn.Run(ctx, "device_add", map[string]any{"driver": "pc-dimm", "id": "dimm-" + id, "memdev": id}, nil)
	if err != nil {
		return plugged, errors.Join(err, conn.Run(ctx, "object-del", map[string]any{"id": id}, nil))
	}
	return plugged + size, nil
}

// addProcessors plugs as many processors as there is room for.
func addProcessors(ctx context.Context, conn *qmp.Client, started *backend.Machine, wanted int64) error {
	missing := (wanted - started.MilliCPU) / 1000
	if missing <= 0 {
		return nil
	}
	var slots []struct {
		Type  string                     `json:"type"`
		Path  string                     `json:"qom-path"`
		Props map[string]json.RawMessage `json:"props"`
	}
	if err := conn.Run(ctx, "query-hotpluggable-cpus", nil, &slots); err != nil {
		return err
	}
	// The list begins with the last slot; guests expect the first free one.
	for _, slot := range slices.Backward(slots) {
		if missing == 0 || slot.Path != "" {
			continue
		}
		arguments := map[string]any{"driver": slot.Type, "id": "cpu-" + string(slot.Props["socket-id"]) + "-" + string(slot.Props["core-id"])}
		for name, value := range maps.All(slot.Props) {
			arguments[name] = value
		}
		if err := conn.Run(ctx, "device_add", arguments, nil); err != nil {
			return err
		}
		missing--
		started.MilliCPU += 1000
	}
	return nil
}
