package qemu

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/operation"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

// diskRetryInterval is the interval at which failed changes of disks, and requests to a guest to release a disk, are
// repeated. Tests shorten it.
var diskRetryInterval = 10 * time.Second

// diskWork is the background work on the disks of a machine; machine.mu protects it. It is not a task: the machine runs,
// and can be stopped and deleted, meanwhile.
type diskWork struct {
	// work is in progress as long as something is left to do.
	work operation.Slot
	// changed has a value if something has changed since the last pass began.
	changed chan struct{}
	// closed means that the machine is being deleted.
	closed bool
	// pending has what is not complete; unchecked means that this manager does not know it yet.
	pending   []backend.PendingDisk
	unchecked bool
}

// changeDisks brings the disks of the machine into the state of its definition, in the background.
func (m *machine) changeDisks() {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.d.closed || m.disks.closed {
		return
	}
	if len(m.def.Disks) == 0 && len(m.def.DiskRecords) == 0 && !m.disks.work.Busy() {
		m.disks.pending = nil
		return
	}
	select {
	case m.disks.changed <- struct{}{}:
	default: // the next pass has not begun
	}
	_ = m.disks.work.Begin(m.d.ctx, &m.d.tasks, operation.Work{Do: m.completeDisks, Changed: func() {
		if len(m.disks.changed) > 0 { // since the last pass
			m.changeDisks()
		}
	}})
}

// completeDisks makes passes over the disks until nothing is left to do.
func (m *machine) completeDisks(ctx context.Context) error {
	for ctx.Err() == nil {
		select {
		case <-m.disks.changed: // this pass sees it
		default:
		}
		pending := m.passDisks(ctx)
		m.setPendingDisks(pending)
		if len(pending) == 0 && len(m.disks.changed) == 0 {
			break
		}
		select {
		case <-m.disks.changed:
		case <-time.After(diskRetryInterval):
		case <-ctx.Done():
		}
	}
	return nil
}

// closeDisks ends the work on disks, before the machine is deleted.
func (m *machine) closeDisks() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.disks.closed = true
	m.disks.work.Cancel()
}

func (m *machine) setPendingDisks(pending []backend.PendingDisk) {
	m.mu.Lock()
	changed := !slices.Equal(m.disks.pending, pending) || m.disks.unchecked
	m.disks.pending, m.disks.unchecked = pending, false
	m.mu.Unlock()
	if changed {
		m.notifyChange()
	}
}

// announceDisks returns the pending disks after a change of the definition, until the work has begun: a disk is not ready
// because nobody has looked at it yet.
func announceDisks(pending []backend.PendingDisk, before, after []backend.Disk) []backend.PendingDisk {
	find := func(disks []backend.Disk, name string) *backend.Disk {
		for i := range disks {
			if disks[i].Name == name {
				return &disks[i]
			}
		}
		return nil
	}
	all := slices.Clone(pending)
	announce := func(name, message string) {
		if !slices.ContainsFunc(all, func(disk backend.PendingDisk) bool { return disk.Name == name }) {
			all = append(all, backend.PendingDisk{Name: name, Message: message})
		}
	}
	for _, disk := range after {
		if old := find(before, disk.Name); old == nil {
			announce(disk.Name, "being added")
		} else if !reflect.DeepEqual(*old, disk) {
			announce(disk.Name, "being changed")
		}
	}
	for _, disk := range before {
		if find(after, disk.Name) == nil {
			announce(disk.Name, "being removed")
		}
	}
	return all
}

// pendingDisks returns what is not complete; m.mu is held.
func (m *machine) pendingDisks() []backend.PendingDisk {
	if m.disks.unchecked {
		return []backend.PendingDisk{{Message: "the disks are being checked"}}
	}
	return slices.Clone(m.disks.pending)
}

// checkFoundDisks checks the disks of a machine that this manager has found: the previous one may have been killed while it
// changed them.
func (m *machine) checkFoundDisks() {
	obsolete := m.obsoleteDisks(m.wantedDisks())
	m.mu.Lock()
	isOn, has := m.run != "", len(m.def.Disks) > 0 || len(m.def.DiskRecords) > 0
	complete := len(obsolete) == 0 && !slices.ContainsFunc(m.def.Disks, func(disk backend.Disk) bool { return !m.def.DiskRecords[disk.Name].Created })
	m.disks.unchecked = m.def.Created && has && (isOn || !complete)
	unchecked := m.disks.unchecked
	m.mu.Unlock()
	if unchecked && !isOn { // otherwise that is done when the monitor answers
		m.changeDisks()
	}
}

// diskPass is one pass over the disks of a machine.
type diskPass struct {
	m       *machine
	wanted  []backend.Disk
	conn    *qmp.Client // nil if the machine is off
	plugged *plugged
	pending []backend.PendingDisk
}

// passDisks does what is possible now, and returns what is not complete.
func (m *machine) passDisks(ctx context.Context) []backend.PendingDisk {
	m.files.Lock()
	defer m.files.Unlock()
	m.mu.Lock()
	p := &diskPass{m: m, wanted: slices.Clone(m.def.Disks)}
	if m.run != "" {
		p.conn = m.owner.Monitor()
	}
	isOn, created := m.run != "", m.def.Created
	isAsleep := m.def.Asleep != nil
	same := sameDisks(m.startedWith().Disks, m.def.Disks)
	m.mu.Unlock()
	switch {
	case ctx.Err() != nil, !created, isAsleep && same:
		return nil
	case isAsleep:
		// The guest has parts of its disks in its memory.
		return []backend.PendingDisk{{Message: "the machine is asleep; its disks change when it is awake"}}
	case isOn && p.conn == nil:
		return []backend.PendingDisk{{Message: "the monitor of QEMU does not answer"}}
	}
	if isOn {
		var err error
		if p.plugged, err = p.query(ctx); err != nil {
			p.fail("", err)
			return p.pending
		}
	}
	for _, name := range m.obsoleteDisks(p.wanted) {
		p.remove(ctx, name)
	}
	for _, disk := range p.wanted {
		if !slices.ContainsFunc(p.pending, func(pending backend.PendingDisk) bool { return pending.Name == disk.Name }) {
			p.add(ctx, disk)
		}
	}
	return p.pending
}

func (p *diskPass) query(ctx context.Context) (*plugged, error) {
	ctx, cancel := context.WithTimeout(ctx, monitorTimeout)
	defer cancel()
	return queryDisks(ctx, p.conn)
}

// fail records a failure. The end of the connection is none: the machine is being stopped, or another pass follows.
func (p *diskPass) fail(name string, err error) {
	if notFree := (*notFreeError)(nil); errors.As(err, &notFree) {
		p.pending = append(p.pending, backend.PendingDisk{Name: name, Message: notFree.why, InUse: notFree.owner})
		return
	}
	if errors.Is(err, qmp.ErrClosed) {
		p.pending = append(p.pending, backend.PendingDisk{Name: name, Message: "the monitor of QEMU does not answer"})
		return
	}
	p.pending = append(p.pending, backend.PendingDisk{Name: name, Message: err.Error(), Failed: true})
}

// remove removes a disk from the guest, and then its file.
func (p *diskPass) remove(ctx context.Context, name string) {
	released := true
	var err error
	if p.conn != nil {
		calling, cancel := context.WithTimeout(ctx, monitorTimeout)
		released, err = unplugDisk(calling, p.conn, p.plugged, name)
		cancel()
	}
	if err == nil && released {
		err = p.m.discardDisk(name)
	}
	switch {
	case err != nil:
		p.fail(name, err)
	case !released:
		p.pending = append(p.pending, backend.PendingDisk{Name: name, Message: "waiting for the guest to release it"})
	}
}

// add creates a disk, and plugs or grows it.
func (p *diskPass) add(ctx context.Context, disk backend.Disk) {
	progress := func(text string) { p.m.setPendingDisks([]backend.PendingDisk{{Name: disk.Name, Message: text}}) }
	if p.conn == nil {
		if err := p.m.prepareDisk(ctx, disk, progress); err != nil {
			p.fail(disk.Name, err)
		}
		return
	}
	if disk.VirtualDisk != "" {
		p.addVirtual(ctx, disk)
		return
	}
	name := disk.Name
	isNew := !slices.Contains(p.plugged.devices, qemu.DiskNode(name))
	err := p.m.createDataDisk(ctx, disk, progress)
	if err == nil && isNew {
		// It may have been created for another size before.
		err = p.m.prepareUnlessKnown(ctx, disk, p.plugged)
	}
	calling, cancel := context.WithTimeout(ctx, monitorTimeout)
	defer cancel()
	if err == nil {
		err = growPlugged(calling, p.conn, p.plugged, name, disk.SizeBytes)
	}
	if err == nil {
		err = p.m.plugDisk(calling, p.conn, p.plugged, name)
	}
	if err != nil {
		p.fail(name, err)
	}
}

// addVirtual claims a VirtualDisk, and plugs or grows it.
func (p *diskPass) addVirtual(ctx context.Context, disk backend.Disk) {
	v, err := p.m.attachDisk(disk)
	if err == nil {
		err = p.m.prepareUnlessKnown(ctx, disk, p.plugged)
	}
	if err != nil {
		p.fail(disk.Name, err)
		return
	}
	calling, cancel := context.WithTimeout(ctx, monitorTimeout)
	defer cancel()
	size := v.definition().SizeBytes
	now, known := p.plugged.Sizes[qemu.DiskNode(disk.Name)]
	err = growPlugged(calling, p.conn, p.plugged, disk.Name, size)
	if err == nil && known && size > now {
		step("virtual disk grown in QEMU")
		p.m.d.diskWatcher.Notify(v.id)
	}
	if err == nil {
		err = p.m.plugDisk(calling, p.conn, p.plugged, disk.Name)
	}
	if err != nil {
		p.fail(disk.Name, err)
	}
}

// prepareUnlessKnown grows the file of a disk, and gives it to the user of the machine, unless QEMU has opened it.
func (m *machine) prepareUnlessKnown(ctx context.Context, disk backend.Disk, p *plugged) error {
	if _, known := p.Sizes[qemu.DiskFileNode(disk.Name)]; known {
		return nil
	}
	return m.prepareDisk(ctx, disk, m.progress)
}
