package qemu

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/driver/qemu/qmp"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
)

// backupPoll is the interval of looks at QEMU while it copies disks.
const backupPoll = 20 * time.Millisecond

// The names of the copy of a disk in QEMU: the job, the node of the copy, and that of its file.
const backupJobPrefix = "snapshot-"

func backupJob(disk string) string      { return backupJobPrefix + disk }
func backupNode(disk string) string     { return "s-" + disk }
func backupFileNode(disk string) string { return "sf-" + disk }

// guestNode returns the node of a disk of the guest.
func guestNode(disk string) string {
	if disk == v1alpha1.RootDiskName {
		return blockNode
	}
	return diskNode(disk)
}

// ownDisks returns the disks of the machine that are not VirtualDisks, the root disk first, without their sizes.
func (m *machine) ownDisks() []snapshotDisk {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []snapshotDisk
	for name, record := range m.def.DiskRecords {
		if record.Created && !record.Removing && record.VirtualDiskUID == "" {
			all = append(all, snapshotDisk{Name: name, Base: record.Base})
		}
	}
	slices.SortFunc(all, func(a, b snapshotDisk) int { return strings.Compare(a.Name, b.Name) })
	if _, err := os.Lstat(m.path(diskFile)); err == nil {
		all = slices.Insert(all, 0, snapshotDisk{Name: v1alpha1.RootDiskName, Base: m.def.Base})
	}
	return all
}

// copied is the content of a snapshot.
type copied struct {
	at     time.Time
	disks  []snapshotDisk
	memory *snapshotMemory
	// quiesced means that the file systems of the guest were frozen.
	quiesced bool
}

// take takes the snapshot. No disk of the machine is plugged, grown or removed, and the machine does not start or fall asleep,
// meanwhile.
func (s *machineSnapshot) take(ctx context.Context, m *machine, memory bool) error {
	m.files.Lock()
	defer m.files.Unlock()
	if err := m.finishRestore(); err != nil {
		return err
	}
	m.mu.Lock()
	isOn, moving, conn, image := m.run != "", m.moving, m.conn, m.def.Image
	m.mu.Unlock()
	disks := m.ownDisks()
	for _, disk := range disks {
		if err := os.RemoveAll(s.path(disk.Name)); err != nil { // of an attempt that was not recorded
			return err
		}
	}
	s.removeMemory()
	var got *copied
	var err error
	switch {
	case isOn && moving:
		return errors.New("the machine is waking or falling asleep")
	case isOn && conn == nil:
		return errors.New("the monitor of QEMU does not answer")
	case isOn:
		got, err = s.backUp(ctx, m, conn, disks, memory)
	default:
		got, err = s.copyFiles(ctx, m, disks, memory)
	}
	if err != nil {
		s.removeMemory()
		return err
	}
	step("snapshot copied")
	for i := range got.disks {
		usage, err := measureDisk(s.path(got.disks[i].Name))
		if err != nil {
			return err
		}
		got.disks[i].SizeBytes = usage.VirtualBytes
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	def := s.def
	def.Taken, def.TakenAt, def.Image, def.Disks, def.Memory, def.Quiesced = true, got.at.UTC(), image, got.disks, got.memory, got.quiesced
	if err := s.write(&def); err != nil {
		return err
	}
	step("snapshot taken")
	return nil
}

// copyFiles copies the disks of a machine that is off or asleep, and its memory if that is wanted.
func (s *machineSnapshot) copyFiles(ctx context.Context, m *machine, disks []snapshotDisk, memory bool) (*copied, error) {
	got := &copied{at: time.Now(), disks: disks}
	for _, disk := range disks {
		err := s.d.copyDisk(ctx, m.path(fileOf(disk.Name)), s.path(disk.Name), func(percent int64) {
			s.progress(fmt.Sprintf("the disk %s is being copied: %d %%", disk.Name, percent))
		})
		if err != nil {
			return nil, fmt.Errorf("copy the disk %s: %w", disk.Name, err)
		}
		step("disk copied for a snapshot")
	}
	if !memory {
		return got, nil
	}
	var err error
	got.memory, err = s.linkMemory(m)
	return got, err
}

// backUp copies the disks of a running machine, as they are at one moment: before the guest changes a part of a disk that is
// not copied yet, QEMU copies that part. The guest does not stop, unless its memory is wanted.
func (s *machineSnapshot) backUp(ctx context.Context, m *machine, conn *qmp.Client, disks []snapshotDisk, memory bool) (got *copied, err error) {
	if err := endBackups(ctx, conn); err != nil { // of a manager that was killed
		return nil, err
	}
	defer func() {
		cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), savedmemory.Timeout)
		defer cancel()
		if endErr := endBackups(cleaning, conn); err == nil {
			err = endErr
		}
	}()
	p, err := queryDisksIn(ctx, conn)
	if err != nil {
		return nil, err
	}
	got = &copied{disks: slices.DeleteFunc(disks, func(disk snapshotDisk) bool { _, has := p.sizes[guestNode(disk.Name)]; return !has })}
	if len(got.disks) == 0 && !memory {
		return nil, errors.New("QEMU has no disks of the machine yet")
	}
	actions, err := s.prepareBackups(ctx, conn, p, got.disks, memory)
	if err != nil {
		return nil, err
	}
	if !memory { // which has what the guest has not written yet
		m.freeze(ctx)
	}
	err = runTogether(ctx, conn, actions)
	got.at = time.Now()
	got.quiesced = m.thaw(ctx)
	if err != nil {
		return nil, err
	}
	step("backup begun")
	if err := s.awaitBackups(ctx, conn); err != nil {
		return nil, err
	}
	step("backup complete")
	if memory {
		if got.memory, got.at, err = s.saveHalted(ctx, m, conn, got.disks); err != nil {
			return nil, err
		}
	}
	if err := endBackups(ctx, conn); err != nil { // QEMU writes what it has cached
		return nil, err
	}
	for _, disk := range got.disks {
		if err := atomicfile.SyncFile(s.path(disk.Name)); err != nil {
			return nil, err
		}
	}
	return got, nil
}

// prepareBackups creates the files of copies, and returns the actions that begin to copy the disks. With track, QEMU records what the
// guest changes from then on.
func (s *machineSnapshot) prepareBackups(ctx context.Context, conn *qmp.Client, p *plugged, disks []snapshotDisk, track bool) ([]map[string]any, error) {
	var actions []map[string]any
	for _, disk := range disks {
		if err := s.prepareBackup(ctx, conn, p, disk); err != nil {
			return nil, fmt.Errorf("prepare the copy of the disk %s: %w", disk.Name, err)
		}
		if track {
			actions = append(actions, map[string]any{"type": "block-dirty-bitmap-add", "data": bitmapOf(guestNode(disk.Name))})
		}
		// The image stays where it is: only what the disk has on top of it is copied.
		actions = append(actions, backupAction(disk.Name, map[string]any{"sync": "top"}))
	}
	step("backup prepared")
	return actions, nil
}

// runTogether begins copies at the same moment.
func runTogether(ctx context.Context, conn *qmp.Client, actions []map[string]any) error {
	if len(actions) == 0 {
		return nil // a machine without disks
	}
	if err := runWithin(ctx, conn, "transaction", map[string]any{"actions": actions}, nil); err != nil {
		return fmt.Errorf("begin the copy: %w", err)
	}
	return nil
}

// backupAction returns the action that begins to copy what sync says of a disk.
func backupAction(disk string, sync map[string]any) map[string]any {
	data := map[string]any{"job-id": backupJob(disk), "device": guestNode(disk), "target": backupNode(disk), "auto-dismiss": false}
	maps.Copy(data, sync)
	return map[string]any{"type": "blockdev-backup", "data": data}
}

// bitmapOf identifies the bitmap of changes of a node.
func bitmapOf(node string) map[string]any {
	return map[string]any{"node": node, "name": changedBitmap}
}

// prepareBackup creates the file of a copy, and gives it to QEMU.
func (s *machineSnapshot) prepareBackup(ctx context.Context, conn *qmp.Client, p *plugged, disk snapshotDisk) error {
	name := disk.Name
	if err := s.d.createFile(ctx, s.path(name), s.d.keeper(), "the disk", disk.Base, p.sizes[guestNode(name)]); err != nil {
		return err
	}
	calling, cancel := context.WithTimeout(ctx, monitorTimeout)
	defer cancel()
	if err := handOver(calling, conn, p, s.path(name), backupFileNode(name), false); err != nil {
		return err
	}
	return addNode(calling, conn, p, map[string]any{"driver": formatQcow2, "node-name": backupNode(name), "file": backupFileNode(name), "backing": nil})
}

// job is a job of QEMU.
type job struct {
	ID, Status, Error string
	Done              int64 `json:"current-progress"`
	Total             int64 `json:"total-progress"`
}

// queryBackups returns the jobs that copy disks.
func queryBackups(ctx context.Context, conn *qmp.Client) ([]job, error) {
	var all []job
	err := runWithin(ctx, conn, "query-jobs", nil, &all)
	return slices.DeleteFunc(all, func(j job) bool { return !strings.HasPrefix(j.ID, backupJobPrefix) }), err
}

// awaitBackups waits until all copies that were begun are complete, and ends their jobs.
func (s *machineSnapshot) awaitBackups(ctx context.Context, conn *qmp.Client) error {
	err := wait.PollUntilContextCancel(ctx, backupPoll, true, func(ctx context.Context) (bool, error) {
		jobs, err := queryBackups(ctx, conn)
		if err != nil {
			return false, err
		}
		var done, total int64
		running := false
		for _, j := range jobs {
			if j.Status == "concluded" && j.Error != "" {
				return false, fmt.Errorf("copy the disk %s: %s", strings.TrimPrefix(j.ID, backupJobPrefix), j.Error)
			}
			running = running || j.Status != "concluded"
			done, total = done+j.Done, total+j.Total
		}
		if running && total > 0 {
			s.progress(fmt.Sprintf("the disks are being copied: %d %%", done*100/total/25*25))
		}
		return !running, nil
	})
	if err != nil {
		return err
	}
	return endBackupJobs(ctx, conn)
}

// endBackupJobs ends all copies of disks, complete or not.
func endBackupJobs(ctx context.Context, conn *qmp.Client) error {
	return wait.PollUntilContextCancel(ctx, backupPoll, true, func(ctx context.Context) (bool, error) {
		jobs, err := queryBackups(ctx, conn)
		if err != nil {
			return false, err
		}
		hasEnded := true
		for _, j := range jobs {
			command := "job-dismiss"
			if j.Status != "concluded" {
				command, hasEnded = "job-cancel", false
			}
			// A job may have ended since, or is ending already.
			if err := connectionError(runWithin(ctx, conn, command, map[string]any{"id": j.ID}, nil)); err != nil {
				return false, err
			}
		}
		return hasEnded, nil
	})
}

// endBackups removes all copies of disks from QEMU, complete or not.
func endBackups(ctx context.Context, conn *qmp.Client) error {
	if err := endBackupJobs(ctx, conn); err != nil {
		return err
	}
	p, err := queryDisksIn(ctx, conn)
	if err != nil {
		return err
	}
	for _, node := range p.tracked {
		if err := runWithin(ctx, conn, "block-dirty-bitmap-remove", bitmapOf(node), nil); err != nil {
			return err
		}
	}
	// A node ends before that of its file, whose name begins with sf.
	for _, prefix := range []string{backupNode(""), backupFileNode("")} {
		for node := range p.sizes {
			if !strings.HasPrefix(node, prefix) {
				continue
			}
			if err := runWithin(ctx, conn, "blockdev-del", map[string]any{"node-name": node}, nil); err != nil {
				return err
			}
		}
	}
	for node := range p.sets {
		if strings.HasPrefix(node, backupFileNode("")) {
			if err := removeSets(ctx, conn, p, node); err != nil {
				return err
			}
		}
	}
	return nil
}

// endOldBackups removes what a manager that was killed has left of copies in QEMU.
func (m *machine) endOldBackups(conn *qmp.Client) {
	m.files.Lock()
	defer m.files.Unlock()
	ctx, cancel := context.WithTimeout(m.d.ctx, savedmemory.Timeout)
	defer cancel()
	if err := endBackups(ctx, conn); err != nil && ctx.Err() == nil && !errors.Is(err, qmp.ErrClosed) {
		m.d.options.Log.Error(err, "Could not end the copies of disks that an earlier manager has begun", "machine", m.id.UID)
	}
}

// runWithin runs a command of the monitor with its timeout.
func runWithin(ctx context.Context, conn *qmp.Client, command string, arguments, result any) error {
	ctx, cancel := context.WithTimeout(ctx, monitorTimeout)
	defer cancel()
	return conn.Run(ctx, command, arguments, result)
}

func queryDisksIn(ctx context.Context, conn *qmp.Client) (*plugged, error) {
	ctx, cancel := context.WithTimeout(ctx, monitorTimeout)
	defer cancel()
	return queryDisks(ctx, conn)
}
