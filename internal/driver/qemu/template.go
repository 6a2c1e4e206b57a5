package qemu

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/guestimage"
	"github.com/keelson-dev/keelson/internal/driver/operation"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
)

const (
	// templateFile describes a template.
	templateFile = "template.json"
	// templateMemory is the memory of the guest of a template, with holes for what is zero, and templateDevices is the state of its
	// devices, as QEMU writes it.
	templateMemory  = "memory"
	templateDevices = "devices"
	// makingDir is the name of the directory of the template that is being made.
	makingDir = "making"
	// maxTemplates and maxTemplateBytes limit the templates of a host. Those that were not used for the longest time go first.
	maxTemplates     = 8
	maxTemplateBytes = 2 << 30
	// templateKeep is how long a template is kept after its last use.
	templateKeep = 7 * 24 * time.Hour
	// sharedKeep is how long a template is kept in memory after its last use.
	sharedKeep = time.Hour
	// templateRetry is the time after which a template that could not be made is tried again.
	templateRetry = time.Hour
)

// template is the memory of a guest that has booted and waits until it is a machine. Nothing of a tenant is in it.
type template struct {
	// Key identifies what the template fits: the shape of a machine, the processors, QEMU, its firmware, and the guest.
	Key string `json:"key"`
	// Build is the part of Key that a machine does not choose. Templates of other builds are never used again.
	Build string `json:"build"`
	// QEMU is the version of QEMU.
	QEMU string `json:"qemu"`
	// Size and SHA256 are those of the memory and of the state of the devices, see copyMemory.
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`

	// used is when a machine was started from it.
	used time.Time
	// shared is the template in memory; nil if it is only on the disk.
	shared *sharedMemory
}

// templates are the templates of a host. They are made one at a time.
type templates struct {
	d *Driver

	// work makes one.
	work operation.Slot

	mu  sync.Mutex
	all map[string]*template
	// failed are the times at which templates could not be made, by their keys.
	failed map[string]time.Time
}

func (d *Driver) templatesDir() string { return filepath.Join(d.options.StateDir, "templates") }

func (t *templates) path(key string, name ...string) string {
	return filepath.Join(append([]string{t.d.templatesDir(), key}, name...)...)
}

// openTemplates ends what a manager that was killed has left behind, and reads the templates.
func (d *Driver) openTemplates() error {
	d.templates = &templates{d: d, all: map[string]*template{}, failed: map[string]time.Time{}}
	ctx, cancel := context.WithTimeout(d.ctx, networkTimeout)
	defer cancel()
	if err := d.endTemplateProcess(ctx); err != nil {
		return fmt.Errorf("end the process of a template: %w", err)
	}
	if d.options.stopsOnly {
		return nil
	}
	entries, err := os.ReadDir(d.templatesDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find templates: %w", err)
	}
	build, _ := d.templateBuild() // without a guest, no template is of use
	for _, entry := range entries {
		found, err := readTemplate(filepath.Join(d.templatesDir(), entry.Name()))
		if err == nil && d.instant && found.Key == entry.Name() && found.Build == build {
			d.templates.all[found.Key] = found
			continue
		}
		if err := os.RemoveAll(filepath.Join(d.templatesDir(), entry.Name())); err != nil {
			return fmt.Errorf("remove a template: %w", err)
		}
	}
	return nil
}

func readTemplate(dir string) (*template, error) {
	raw, err := os.ReadFile(filepath.Join(dir, templateFile))
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(filepath.Join(dir, templateFile))
	if err != nil {
		return nil, err
	}
	t := &template{used: info.ModTime()}
	return t, json.Unmarshal(raw, t)
}

// noTemplate returns why a machine is never started from a template; "" if it may be.
func noTemplate(machine *backend.Machine) string {
	switch {
	case machine.Image != nil:
		return "it has an image"
	case machine.Firmware == v1alpha1.FirmwareUEFI:
		return "it has UEFI firmware"
	case machine.CDROM != nil:
		return "it has a CD-ROM drive"
	case machine.Display == v1alpha1.DisplayVGA:
		return "it has a display"
	}
	return ""
}

// templateLaunch returns the QEMU of the template for a machine: one with the same devices, but without the disks and the
// network, which the guest finds when it is a machine.
func (d *Driver) templateLaunch(l *launch) (*launch, error) {
	guest, err := guestimage.Read(d.options.GuestDir)
	if err != nil {
		return nil, err
	}
	t := newLaunch(backend.Machine{
		Identity: backend.Identity{UID: templateUID, Namespace: "keelson", Name: "template"},
		MilliCPU: l.machine.MilliCPU, MemoryBytes: l.machine.MemoryBytes, CPUModel: l.machine.CPUModel,
	}, d.kvm, d.plugs)
	t.Version, t.Programs, t.Template, t.BusSlot = l.Version, l.Programs, true, qemu.FirstDriveSlot
	t.Kernel, t.Initrd, t.Cmdline = guest.Kernel, guest.Initramfs, guest.Cmdline+" "+templateWord
	for _, drive := range []bool{l.Root != nil, l.Seed != ""} {
		if drive {
			t.BusSlot++
		}
	}
	return t, nil
}

// templateBuild identifies what all templates of this driver depend on.
func (d *Driver) templateBuild() (string, error) {
	guest, err := os.ReadFile(filepath.Join(d.options.GuestDir, "guest.json")) // it has the digests of the other files
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "2\n%s\n", guest)
	for _, path := range append([]string{d.binary}, firmwareFiles(d.binary)...) {
		info, err := os.Stat(path)
		if err != nil {
			continue // QEMU looks in several places
		}
		fmt.Fprintf(sum, "%s %d %d\n", path, info.Size(), info.ModTime().UnixNano())
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// firmwareFiles are the places of QEMU's BIOS.
func firmwareFiles(binary string) []string {
	var all []string
	for _, dir := range append([]string{"/usr/share/qemu", "/usr/share/seabios"}, programDirs(binary)...) {
		all = append(all, filepath.Join(dir, "bios-256k.bin"))
	}
	return all
}

// key returns the build and the key of a template.
func (t *templates) key(l *launch) (build, key string, err error) {
	if build, err = t.d.templateBuild(); err != nil {
		return "", "", err
	}
	bare := *l
	bare.User = nil
	sum := sha256.Sum256([]byte(strings.Join(append(bare.Arguments(), l.Processors(), build), "\x00")))
	return build, hex.EncodeToString(sum[:]), nil
}

// find returns the template for a machine, and opens its memory; the error says why there is none.
func (t *templates) find(l *launch) (*template, *sharedMemory, error) {
	if why := noTemplate(&l.machine); why != "" {
		return nil, nil, errors.New(why)
	}
	bare, err := t.d.templateLaunch(l)
	if err != nil {
		return nil, nil, err
	}
	_, key, err := t.key(bare)
	if err != nil {
		return nil, nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	found := t.all[key]
	if found == nil {
		return nil, nil, errors.New("there is no template for its shape yet")
	}
	shared, err := t.openShared(found)
	if err != nil {
		t.removeLocked(found)
		return nil, nil, fmt.Errorf("its template cannot be used: %w", err)
	}
	found.used = time.Now()
	_ = os.Chtimes(t.path(key, templateFile), found.used, found.used) // the next manager may remove it sooner
	return found, shared, nil
}

// openShared opens the memory of a template, and reads it first if it is only on the disk; t.mu is held.
func (t *templates) openShared(found *template) (*sharedMemory, error) {
	if found.shared == nil {
		shared, err := readShared(t.path(found.Key, templateMemory), t.path(found.Key, templateDevices), found.SHA256)
		if err != nil {
			return nil, err
		}
		found.shared = shared
	}
	return found.shared.open()
}

// unload leaves a template on the disk only; templates.mu is held.
func (t *template) unload() {
	if t.shared != nil {
		t.shared.close()
		t.shared = nil
	}
}

// drop removes a template that QEMU does not accept. It is not made again soon.
func (t *templates) drop(found *template) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed[found.Key] = time.Now()
	t.removeLocked(found)
}

// removeLocked removes a template; t.mu is held. Machines that are being started from it have its memory open.
func (t *templates) removeLocked(found *template) {
	delete(t.all, found.Key)
	found.unload()
	if err := os.RemoveAll(t.path(found.Key)); err != nil {
		t.d.options.Log.Error(err, "Could not remove a template; the next manager does", "template", found.Key)
	}
}

// add records a template whose files are in the directory making, and makes room for it.
func (t *templates) add(made *template) error {
	if err := atomicfile.WriteJSON(t.path(makingDir, templateFile), made, atomicfile.Durable); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := os.RemoveAll(t.path(made.Key)); err != nil {
		return err
	}
	if err := os.Rename(t.path(makingDir), t.path(made.Key)); err != nil {
		return err
	}
	made.used = time.Now()
	t.all[made.Key] = made
	t.collectLocked(time.Now())
	return nil
}

// collect removes templates that were not used for long.
func (t *templates) collect(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.collectLocked(now)
}

// collectLocked removes templates that were not used for long, or are too many or too large; t.mu is held.
func (t *templates) collectLocked(now time.Time) {
	all := make([]*template, 0, len(t.all))
	for _, each := range t.all {
		all = append(all, each)
	}
	slices.SortFunc(all, func(a, b *template) int { return cmp.Or(b.used.Compare(a.used), strings.Compare(a.Key, b.Key)) })
	for _, each := range all {
		if now.Sub(each.used) > sharedKeep {
			each.unload()
		}
	}
	for _, each := range excess(all, now) {
		t.removeLocked(each)
	}
}

// excess returns the templates that are not kept, of all in the order of their use, the last one first.
func excess(all []*template, now time.Time) []*template {
	var removed []*template
	kept, size := 0, int64(0)
	for _, each := range all {
		if kept == maxTemplates || size+each.Size > maxTemplateBytes || now.Sub(each.used) > templateKeep {
			removed = append(removed, each)
			continue
		}
		kept++
		size += each.Size
	}
	return removed
}
