package pod

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/launcher"
)

// liveInterval is the interval of attempts to change a running machine, for example while its volume is expanded. Tests shorten it.
var liveInterval = 10 * time.Second

// liveTimeout limits an attempt.
const liveTimeout = 30 * time.Second

// liveChange is what a machine gets while it runs: memory that the guest is left with, in bytes, 0 if that is right, grown disks, and other
// ports.
type liveChange struct {
	memory int64
	disks  []backend.Disk
	ports  bool
}

func (c *liveChange) isEmpty() bool { return c.memory == 0 && len(c.disks) == 0 && !c.ports }

// liveTask is the last attempt to apply the changes of a spec to a Pod. tried means that the first attempt is over.
type liveTask struct {
	pod   types.UID
	hash  string
	tried bool
}

// isRunOf reports whether a record describes the run in a Pod, with what it began with.
func (r *record) isRunOf(pod *corev1.Pod) bool {
	return r.Started != nil && r.Run == pod.Annotations[annotationRun]
}

// running returns what a Pod runs, with the changes since it began; false if it is not readable.
func (r *record) running(pod *corev1.Pod) (launcher.Definition, bool) {
	definition, readable := definitionOf(pod)
	if readable && r.isRunOf(pod) {
		started := newDefinition(r.Started)
		definition.DiskBytes, definition.Disks, definition.Ports = started.DiskBytes, started.Disks, started.Ports
		definition.MemoryBytes = cmp.Or(r.BalloonBytes, definition.MemoryBytes)
	}
	return definition, readable
}

// liveChanges returns what of the spec of a machine is to be applied to its Pod, which may be nil. It is a pure function.
func liveChanges(rec *record, pod *corev1.Pod) (change liveChange) {
	if pod == nil || !isOn(pod) || pod.DeletionTimestamp != nil || !rec.isRunOf(pod) || rec.Stopped || rec.Machine.Hash == "" {
		return change
	}
	definition, readable := definitionOf(pod)
	if !readable {
		return change
	}
	// The Pod has no more memory than that of the start.
	if target := min(rec.Machine.MemoryBytes, definition.MemoryBytes); target != cmp.Or(rec.BalloonBytes, definition.MemoryBytes) {
		change.memory = target
	}
	change.ports = !slices.Equal(newDefinition(rec.Started).Ports, newDefinition(&rec.Machine).Ports)
	if rec.DiskRefused != "" {
		return change
	}
	has := map[string]int64{}
	for _, disk := range claimedDisks(rec.Started) {
		has[disk.Name] = disk.SizeBytes
	}
	for _, disk := range claimedDisks(&rec.Machine) {
		if size := has[disk.Name]; size > 0 && size < disk.SizeBytes {
			change.disks = append(change.disks, disk)
		}
	}
	return change
}

// followLive begins to apply the changes of a machine to its Pod, in the background, once for each spec and Pod.
func (d *Driver) followLive(id backend.Identity) {
	secret, pod, err := d.seen(d.running, id)
	if err != nil || secret == nil || pod == nil {
		return
	}
	rec, err := recordOf(secret)
	if err != nil {
		return // Observe reports it
	}
	if change := liveChanges(rec, pod); change.isEmpty() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if task := d.live[keyOf(id)]; d.closed || task != nil && task.pod == pod.UID && task.hash == rec.Machine.Hash {
		return
	}
	task := &liveTask{pod: pod.UID, hash: rec.Machine.Hash}
	d.live[keyOf(id)] = task
	d.watches.Go(func() { d.keepApplying(id, task) })
}

// keepApplying applies changes until they are, or cannot be, or there is another task.
func (d *Driver) keepApplying(id backend.Identity, task *liveTask) {
	d.repeat(liveInterval, func() bool {
		ctx, cancel := context.WithTimeout(d.running, liveTimeout)
		again, err := d.applyLive(ctx, id)
		cancel()
		d.mu.Lock()
		task.tried = true
		current := d.live[keyOf(id)] == task
		d.mu.Unlock()
		return current && (again || err != nil) && !errors.Is(err, backend.ErrNotFound)
	})
}

// awaitLive waits for the first attempt to apply the changes of a machine, so that what is applied at once never seems to need a restart.
func (d *Driver) awaitLive(ctx context.Context, id backend.Identity) {
	d.await(ctx, func() bool {
		secret, pod, err := d.seen(ctx, id)
		if err != nil || secret == nil {
			return true
		}
		rec, err := recordOf(secret)
		if err != nil {
			return true
		}
		change := liveChanges(rec, pod)
		d.mu.Lock()
		defer d.mu.Unlock()
		task := d.live[keyOf(id)]
		return change.isEmpty() || task != nil && task.pod == pod.UID && task.hash == rec.Machine.Hash && task.tried
	})
}

// applyLive applies the changes of a machine to its Pod, and records that. again means that there is more to do later. Every step can be
// repeated, so that it does not matter where a manager ends.
func (d *Driver) applyLive(ctx context.Context, id backend.Identity) (again bool, err error) {
	secret, rec, pod, err := d.current(ctx, id)
	if err != nil {
		return false, err
	}
	change := liveChanges(rec, pod)
	if change.isEmpty() {
		return false, nil
	}
	changed, waits := false, false
	if change.memory > 0 {
		if err = d.ask(ctx, id, launcher.MemoryPath, bytesOf(change.memory)); err == nil {
			step("memory changed")
			rec.BalloonBytes, changed = change.memory, true
		}
		err = unlessRefused(err)
	}
	if change.ports {
		values := url.Values{}
		for _, port := range newDefinition(&rec.Machine).Ports {
			values.Add(launcher.PortParameter, port.String())
		}
		portsErr := d.ask(ctx, id, launcher.PortsPath, values)
		if portsErr == nil {
			step("ports changed")
			rec.Started.Ports, changed = rec.Machine.Ports, true
		}
		err = errors.Join(err, unlessRefused(portsErr))
	}
	if len(change.disks) > 0 {
		var diskErr error
		var grown bool
		grown, waits, diskErr = d.growRunning(ctx, rec, change.disks)
		changed, err = changed || grown, errors.Join(err, diskErr)
	}
	if changed {
		err = errors.Join(err, d.writeRecord(ctx, secret, rec, seedOf(secret)))
		step("changes recorded")
	}
	return waits, err
}

// growRunning grows disks of a machine that runs, and changes its record: the sizes of those that have grown, and why others do not. waits
// means that volumes are being expanded.
func (d *Driver) growRunning(ctx context.Context, rec *record, disks []backend.Disk) (changed, waits bool, err error) {
	id := rec.Machine.Identity
	claims, err := d.claims(ctx, id)
	if err != nil {
		return false, false, err
	}
	var refusals []string
	var errs []error
	for _, disk := range disks {
		claim := claims[disk.Name]
		if claim == nil {
			continue // the next start reports it
		}
		_, refused, err := d.growClaim(ctx, claim, disk.SizeBytes)
		if err == nil && refused == "" {
			if has, want := claim.Status.Capacity[corev1.ResourceStorage], claimSize(disk.SizeBytes+memoryIn(claim)); has.Cmp(want) < 0 {
				waits = true
				continue
			}
			values := bytesOf(disk.SizeBytes)
			values.Set(launcher.DiskParameter, disk.Name)
			err = d.ask(ctx, id, launcher.GrowPath, values)
		}
		switch {
		case errors.As(err, new(oldLauncher)):
			refusals = append(refusals, err.Error())
		case err != nil:
			errs = append(errs, err)
		case refused != "":
			refusals = append(refusals, refused)
		default:
			step("disk grown")
			setSize(rec.Started, disk)
			changed = true
		}
	}
	if len(refusals) > 0 {
		rec.DiskRefused, changed = strings.Join(refusals, "; "), true
	}
	return changed, waits, errors.Join(errs...)
}

// setSize gives a machine the size of a disk that it has.
func setSize(machine *backend.Machine, disk backend.Disk) {
	if disk.Name == rootDisk {
		machine.DiskBytes = disk.SizeBytes
		return
	}
	machine.Disks = slices.Clone(machine.Disks)
	for i := range machine.Disks {
		if machine.Disks[i].Name == disk.Name {
			machine.Disks[i].SizeBytes = disk.SizeBytes
		}
	}
}

// hasSizesOf reports whether two machines have the same sizes of their disks.
func hasSizesOf(a, b *backend.Machine) bool {
	one, other := newDefinition(a), newDefinition(b)
	return one.DiskBytes == other.DiskBytes && slices.Equal(one.Disks, other.Disks)
}

// unlessRefused returns the error of a request to a launcher, unless that cannot do it: then the change waits for a restart.
func unlessRefused(err error) error {
	if errors.As(err, new(oldLauncher)) || errors.As(err, new(refusal)) {
		return nil
	}
	return err
}

func bytesOf(bytes int64) url.Values {
	return url.Values{launcher.BytesParameter: {strconv.FormatInt(bytes, 10)}}
}

// ask makes the launcher of a machine change it.
func (d *Driver) ask(ctx context.Context, id backend.Identity, path string, values url.Values) error {
	conn, err := d.connect(ctx, id, "the launcher", path+"?"+values.Encode())
	if err != nil {
		return err
	}
	return conn.Close()
}
