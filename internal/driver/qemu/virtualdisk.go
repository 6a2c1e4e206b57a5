package qemu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/operation"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/sandbox"
)

// diskDefinitionFile is the file with the definition of a VirtualDisk in its folder; its disk is diskFile.
const diskDefinitionFile = "disk.json"

// virtualDisk is the disk of a VirtualDisk. Its file belongs to the user of the machine that has it, otherwise to the first
// user of the range, which only qemu-img has.
type virtualDisk struct {
	d   *Driver
	id  backend.DiskIdentity
	dir string

	// mu is locked after Driver.mu and machine.mu.
	mu  sync.Mutex
	def diskDefinition
	// work is the creation or growth in progress. No machine can claim the disk meanwhile.
	work operation.Slot
	// deleting means that no machine can claim the disk any more.
	deleting bool
	// readers is the number of clones that are being made of the disk; idle is closed when there are none any more. holds is
	// the number of starts of the machine that has the disk in progress. One excludes the other.
	readers int
	idle    chan struct{}
	holds   int
}

// diskDefinition is the persistent state of a disk.
type diskDefinition struct {
	backend.VirtualDisk
	// CreatedAt is when the disk was recorded first.
	CreatedAt time.Time `json:"createdAt"`
	// Base is the image of the disk, and its format.
	Base *qemu.Image `json:"base,omitempty"`
	// Created means that the file is complete.
	Created bool `json:"created,omitempty"`
	// Removing means that the file is being removed: it may be gone, and is not used again.
	Removing bool `json:"removing,omitempty"`
	// Owner is the machine that has the disk. It is written before the machine gets the disk, and removed after QEMU has
	// released it or has ended.
	Owner *backend.Identity `json:"owner,omitempty"`
}

func (d *Driver) disksDir() string { return disksDir(d.options.StateDir) }

// disksDir is the directory of VirtualDisks in a state directory.
func disksDir(stateDir string) string { return filepath.Join(stateDir, "disks") }

// virtualDiskPath returns the file of a disk.
func (d *Driver) virtualDiskPath(uid types.UID) string {
	return filepath.Join(d.disksDir(), string(uid), diskFile)
}

func (v *virtualDisk) path() string { return filepath.Join(v.dir, diskFile) }

// readDiskDefinition reads the definition of the disk in a folder.
func readDiskDefinition(dir string) (def diskDefinition, err error) {
	err = readRecord(dir, diskDefinitionFile, "disk", &def, &def.UID)
	return def, err
}

// write makes def the definition, durably; v.mu is held.
func (v *virtualDisk) write(def *diskDefinition) error {
	if err := atomicfile.WriteJSON(filepath.Join(v.dir, diskDefinitionFile), def, atomicfile.Durable); err != nil {
		return fmt.Errorf("record the disk %s: %w", v.id.Name, err)
	}
	v.def = *def
	return nil
}

// openDisks finds the disks in the state directory.
func (d *Driver) openDisks() error {
	return d.openFolders(d.disksDir(), "disk", func(dir string) error {
		def, err := readDiskDefinition(dir)
		if err == nil {
			d.disks[def.UID] = &virtualDisk{d: d, id: def.DiskIdentity, dir: dir, def: def}
		}
		return err
	})
}

// findDisk returns a disk, nil if there is none.
func (d *Driver) findDisk(uid types.UID) *virtualDisk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.disks[uid]
}

// namedDisk returns the disk with a name in the namespace of a machine; nil if there is none. The API has no two of a name, so
// the last one is meant if the finalizer of another one was removed by force.
func (d *Driver) namedDisk(cluster types.UID, namespace, name string) *virtualDisk {
	d.mu.Lock()
	defer d.mu.Unlock()
	var last *virtualDisk
	for _, v := range d.disks {
		if v.id.Cluster != cluster || v.id.Namespace != namespace || v.id.Name != name {
			continue
		}
		if last == nil || last.definition().CreatedAt.Before(v.definition().CreatedAt) {
			last = v
		}
	}
	return last
}

// allDisks returns all disks.
func (d *Driver) allDisks() []*virtualDisk {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []*virtualDisk
	for _, v := range d.disks {
		all = append(all, v)
	}
	return all
}

// notifyDisk notifies the controller of a change of a disk, and the machines that name the disk.
func (d *Driver) notifyDisk(v *virtualDisk) {
	d.diskWatcher.Notify(v.id)
	d.wakeMachines(v)
}

// wakeMachines lets the machines that name a disk look at it.
func (d *Driver) wakeMachines(v *virtualDisk) {
	for _, m := range d.all() {
		if m.id.Cluster != v.id.Cluster || m.id.Namespace != v.id.Namespace {
			continue
		}
		for _, disk := range m.wantedDisks() {
			if disk.VirtualDisk == v.id.Name {
				m.changeDisks()
				break
			}
		}
	}
}

// keeper is the user of the file of a disk that no machine has.
func (d *Driver) keeper() *sandbox.User { return newUser(d.users.limits.First) }

// definition returns a copy of the definition.
func (v *virtualDisk) definition() diskDefinition {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.def
}

// isOwnerOn reports whether a machine is on or asleep, or may be.
func (d *Driver) isOwnerOn(owner *backend.Identity) bool {
	m, err := d.find(*owner)
	if err != nil {
		return true // its definition is unreadable; a machine that is gone has no disks
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.run != "" || m.def.Asleep != nil
}

// isGone reports whether a machine certainly no longer exists: its folder was removed, by this driver before a crash or by
// somebody else, and it has no process.
func (d *Driver) isGone(uid types.UID) bool {
	d.mu.Lock()
	known := d.machines[uid] != nil
	d.mu.Unlock()
	if known {
		return false
	}
	if _, err := os.Lstat(filepath.Join(d.machinesDir(), string(uid))); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	strays, err := findOrphans(uid)
	return err == nil && len(strays) == 0
}

// releaseLostDisks releases the disks of machines that no longer exist.
func (d *Driver) releaseLostDisks() {
	for _, v := range d.allDisks() {
		if owner := v.definition().Owner; owner != nil && d.isGone(owner.UID) {
			if err := v.release(owner.UID); err != nil {
				d.options.Log.Error(err, "Could not release the disk of a machine that is gone", "disk", v.id.Namespace+"/"+v.id.Name)
			}
		}
	}
}
