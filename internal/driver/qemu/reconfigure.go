package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/qemu/qmp"
)

// pending returns the fields in which a machine that is on differs from its definition.
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
	add(!slices.Equal(started.Ports, def.Ports), "ports")
	add(def.SeedSum != def.StartedSeedSum, "cloudInit")
	return fields
}

// Reconfigure implements backend.Driver. In a machine that is on, the disk grows, memory
// goes to and comes from the balloon, and processors are added as far as there is room;
// everything else waits for a restart.
func (d *Driver) Reconfigure(ctx context.Context, machine backend.Machine) error {
	if err := validate(&machine); err != nil {
		return err
	}
	m, err := d.find(machine.Identity)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.def.Machine, m.def.SeedSum = machine, seedSum(machine.Seed)
	m.save()
	isOn := m.run != ""
	started := *m.startedWith()
	boot := m.def.BootMemory
	m.mu.Unlock()
	defer m.tell()
	if !isOn {
		return nil
	}
	conn, err := m.monitor()
	if err != nil {
		return err
	}
	err = errors.Join(
		resizeDisk(ctx, conn, &started, machine.DiskBytes),
		inflate(ctx, conn, &started, machine.MemoryBytes, boot),
		addProcessors(ctx, conn, &started, machine.MilliCPU),
	)
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

// resizeDisk grows the disk of a machine that has one.
func resizeDisk(ctx context.Context, conn *qmp.Client, started *backend.Machine, size int64) error {
	if started.DiskBytes == 0 || size <= started.DiskBytes {
		return nil
	}
	if err := conn.Run(ctx, "block_resize", map[string]any{"node-name": blockNode, "size": size}, nil); err != nil {
		return err
	}
	started.DiskBytes = size
	return nil
}

// inflate sets what the guest is left of the memory that it was started with.
func inflate(ctx context.Context, conn *qmp.Client, started *backend.Machine, wanted, boot int64) error {
	target := min(wanted, boot)
	if boot == 0 || target == started.MemoryBytes {
		return nil
	}
	if err := conn.Run(ctx, "balloon", map[string]any{"value": target}, nil); err != nil {
		return err
	}
	started.MemoryBytes = target
	return nil
}

// addProcessors plugs processors in, as many as there is room for.
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
	// The list begins with the last one; guests expect the first that is free.
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
