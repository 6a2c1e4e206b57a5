package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

func (d *Driver) find(ctx context.Context, id backend.Identity) (*machine, *container.InspectResponse, error) {
	m, err := d.machine(id)
	if err != nil {
		return nil, nil, err
	}
	ctr, err := d.inspect(ctx, id.UID)
	if err != nil {
		return m, nil, err
	}
	return m, &ctr, nil
}

func isOn(ctr *container.InspectResponse) bool {
	return ctr.State.Status == container.StateRunning || ctr.State.Status == container.StatePaused
}

// Create implements backend.Driver.
func (d *Driver) Create(ctx context.Context, machine backend.Machine) error {
	if err := errors.Join(d.validate(&machine), checkImage(&machine)); err != nil {
		return err
	}
	m, _, err := d.find(ctx, machine.Identity)
	if !errors.Is(err, backend.ErrNotFound) {
		return err // it exists, or its state is unknown
	}
	return m.begin(backend.TaskCreate, func(ctx context.Context) error { return m.create(ctx, machine) })
}

// create makes the container. Its name prevents a duplicate.
func (m *machine) create(ctx context.Context, wanted backend.Machine) error {
	m.change(func(rec *record) { *rec = record{Machine: wanted, SeedSum: seedSum(wanted.Seed)} })
	step("create noted")
	if err := m.d.checkHost(ctx); err != nil {
		return err
	}
	image, err := m.ensureImage(ctx, wanted.Image)
	if err != nil {
		return err
	}
	step("image there")
	options := newContainer(&wanted, image)
	if err := m.d.lockNetworks(ctx); err != nil {
		return err
	}
	defer m.d.networking.Release(1)
	if err := m.d.ensureNetwork(ctx, wanted.Identity); err != nil {
		return err
	}
	_, err = m.d.engine.ContainerCreate(ctx, options)
	if cerrdefs.IsConflict(err) {
		if _, err = m.d.inspect(ctx, m.id.UID); errors.Is(err, backend.ErrNotFound) {
			return fmt.Errorf("the container %s exists and was not created by Keelson: remove or rename it", options.Name)
		}
		return err
	}
	if err != nil {
		return m.d.typed("create the container "+options.Name, err)
	}
	step("container created")
	return nil
}

// Start implements backend.Driver.
func (d *Driver) Start(ctx context.Context, machine backend.Machine) error {
	if err := d.validate(&machine); err != nil {
		return err
	}
	m, ctr, err := d.find(ctx, machine.Identity)
	if err != nil {
		return err
	}
	if isOn(ctr) {
		return nil
	}
	return m.begin(backend.TaskStart, func(ctx context.Context) error { return m.start(ctx, ctr, machine) })
}

func (m *machine) start(ctx context.Context, ctr *container.InspectResponse, wanted backend.Machine) error {
	m.change(func(rec *record) {
		rec.Machine = wanted
		if !wanted.KeepsSeed {
			rec.SeedSum = seedSum(wanted.Seed)
		}
		rec.Stop, rec.Failed, rec.AfterRun = nil, nil, runOf(ctr.State)
	})
	step("start noted")
	name := containerName(m.id.UID)
	if resources := newResources(&wanted); !hasResources(ctr.HostConfig, &resources) {
		if err := m.d.update(ctx, name, resources); err != nil {
			return err
		}
	}
	if !wanted.KeepsSeed {
		if err := m.putSeed(ctx, wanted.Seed); err != nil {
			return err
		}
	}
	if err := m.restoreNetwork(ctx, ctr); err != nil {
		return err
	}
	step("ready to start")
	if _, err := m.d.engine.ContainerStart(ctx, name, client.ContainerStartOptions{}); err != nil {
		return m.d.typed("start the container "+name, err)
	}
	step("started")
	return nil
}

// restoreNetwork recreates the network of the machine if it was removed while the machine was off.
func (m *machine) restoreNetwork(ctx context.Context, ctr *container.InspectResponse) error {
	id := identityOf(ctr.Config.Labels)
	if err := m.d.lockNetworks(ctx); err != nil {
		return err
	}
	defer m.d.networking.Release(1)
	return m.d.ensureNetwork(ctx, id)
}

// putSeed copies the seed into the container, where cloud-init looks for it.
func (m *machine) putSeed(ctx context.Context, seed *backend.Seed) error {
	sum := seedSum(seed)
	m.mu.Lock()
	present := m.record.StartedSeedSum
	m.mu.Unlock()
	if present == sum {
		return nil
	}
	archive, err := packSeed(m.id, seed, present != "")
	if err != nil {
		return fmt.Errorf("pack the seed: %w", err)
	}
	options := client.CopyToContainerOptions{DestinationPath: "/", Content: bytes.NewReader(archive)}
	if _, err := m.d.engine.CopyToContainer(ctx, containerName(m.id.UID), options); err != nil {
		return m.d.typed("copy the seed into the container "+containerName(m.id.UID), err)
	}
	m.change(func(rec *record) { rec.StartedSeedSum = sum })
	return nil
}

func hasResources(host *container.HostConfig, wanted *container.Resources) bool {
	return host.NanoCPUs == wanted.NanoCPUs && host.Memory == wanted.Memory && host.MemorySwap == wanted.MemorySwap
}

func (d *Driver) update(ctx context.Context, name string, resources container.Resources) error {
	if _, err := d.engine.ContainerUpdate(ctx, name, client.ContainerUpdateOptions{Resources: &resources}); err != nil {
		return d.typed("update the container "+name, err)
	}
	return nil
}

// Stop implements backend.Driver.
func (d *Driver) Stop(ctx context.Context, id backend.Identity, grace time.Duration) error {
	m, ctr, err := d.find(ctx, id)
	if err != nil {
		return err
	}
	m.change(func(rec *record) { rec.Stop, rec.Failed = &stopRequest{Run: runOf(ctr.State)}, nil })
	step("stop noted")
	if !isOn(ctr) {
		return nil
	}
	return m.begin(backend.TaskStop, func(ctx context.Context) error { return m.stop(ctx, grace) })
}

// stop asks the guest to end; the engine kills it after grace. The engine resumes a paused
// container for that.
func (m *machine) stop(ctx context.Context, grace time.Duration) error {
	if grace > 0 {
		m.progress("the guest is powering off")
	}
	name := containerName(m.id.UID)
	options := client.ContainerStopOptions{Timeout: ptr.To(int(math.Ceil(grace.Seconds())))}
	if _, err := m.d.engine.ContainerStop(ctx, name, options); err != nil && !cerrdefs.IsNotFound(err) {
		return m.d.typed("stop the container "+name, err)
	}
	step("stopped")
	return nil
}

// Pause implements backend.Driver.
func (d *Driver) Pause(ctx context.Context, id backend.Identity) error {
	return d.freeze(ctx, id, "pause", container.StatePaused, func(name string) error {
		_, err := d.engine.ContainerPause(ctx, name, client.ContainerPauseOptions{})
		return err
	})
}

// Sleep implements backend.Driver.
func (d *Driver) Sleep(context.Context, backend.Identity, backend.SleepOptions) error {
	return fmt.Errorf("%w: the driver docker cannot put machines to sleep; set spec.action to active, stopped or paused, and remove spec.powerSchedule and spec.idle", backend.ErrInvalid)
}

// Resume implements backend.Driver.
func (d *Driver) Resume(ctx context.Context, id backend.Identity) error {
	return d.freeze(ctx, id, "resume", container.StateRunning, func(name string) error {
		_, err := d.engine.ContainerUnpause(ctx, name, client.ContainerUnpauseOptions{})
		return err
	})
}

func (d *Driver) freeze(ctx context.Context, id backend.Identity, what string, goal container.ContainerState, call func(string) error) error {
	_, ctr, err := d.find(ctx, id)
	if err != nil || ctr.State.Status == goal {
		return err
	}
	name := containerName(id.UID)
	if !isOn(ctr) {
		return fmt.Errorf("cannot %s the container %s in state %s", what, name, ctr.State.Status)
	}
	if err := call(name); err != nil {
		return d.typed(what+" the container "+name, err)
	}
	return nil
}

// Reconfigure implements backend.Driver. Limits take effect immediately; ports need no action.
func (d *Driver) Reconfigure(ctx context.Context, machine backend.Machine) error {
	if err := d.validate(&machine); err != nil {
		return err
	}
	m, ctr, err := d.find(ctx, machine.Identity)
	if err != nil {
		return err
	}
	defer d.watcher.Notify(machine.Identity)
	wanted := newResources(&machine)
	if !hasResources(ctr.HostConfig, &wanted) {
		if isOn(ctr) && wanted.Memory < ctr.HostConfig.Memory && !d.fits(ctx, machine) {
			// The kernel would kill what does not fit, so a smaller limit waits for a restart.
			wanted.Memory, wanted.MemorySwap = ctr.HostConfig.Memory, ctr.HostConfig.MemorySwap
		}
		if err := d.update(ctx, containerName(machine.UID), wanted); err != nil {
			return err
		}
	}
	m.change(func(rec *record) {
		sum := seedSum(machine.Seed)
		if rec.Machine.Hash == "" && runOf(ctr.State) != "" {
			rec.StartedSeedSum = sum // the record is lost; the container is known to have run with some seed
		}
		rec.Machine, rec.SeedSum = machine, sum
	})
	return nil
}

// validate rejects what this engine cannot do.
func (d *Driver) validate(machine *backend.Machine) error {
	if err := Validate(machine); err != nil {
		return err
	}
	if err := checkUID(machine.UID); err != nil {
		return err
	}
	if most := int64(d.processors) * 1000; machine.MilliCPU > most {
		return fmt.Errorf("%w: spec.resource.cpu: the Docker engine's host has %d processors", backend.ErrInvalid, d.processors)
	}
	return nil
}
