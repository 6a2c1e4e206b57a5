// Package qemu is the driver that runs each machine as a QEMU process on this host. The processes
// outlive the manager; the next one adopts them.
//
// Each machine has a folder with machine.json (its definition, and the end of its last run), its
// disk, its seed, the log of its serial console, and sockets. docs/drivers.md describes the layout.
package qemu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/keelson-dev/keelson/internal/confine"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/guestboot"
	"github.com/keelson-dev/keelson/internal/network"
	"github.com/keelson-dev/keelson/internal/process"
)

// Name is the name of the driver.
const Name = "qemu"

// Accelerator is the way to run the processors of a guest.
type Accelerator string

// The values of Accelerator.
const (
	// AccelAuto selects KVM if it is trustworthy, otherwise TCG.
	AccelAuto Accelerator = "auto"
	// AccelKVM is the hardware virtualization of Linux.
	AccelKVM Accelerator = "kvm"
	// AccelTCG is software emulation.
	AccelTCG Accelerator = "tcg"
)

// InstantStart is when machines with the default guest start from templates.
type InstantStart string

// The values of InstantStart.
const (
	// InstantAuto starts them from templates if their processors are emulated: then, a boot takes long.
	InstantAuto InstantStart = "auto"
	// InstantAlways always does.
	InstantAlways InstantStart = "true"
	// InstantNever boots them.
	InstantNever InstantStart = "false"
)

// Options configure the driver.
type Options struct {
	// StateDir is the state directory.
	StateDir string
	// Accelerator runs the processors. Empty means AccelAuto.
	Accelerator Accelerator
	// GuestDir is the folder with the default guest, see docs/guest.md.
	GuestDir string
	// AttachTimeout is the time that Open waits for the responses of running machines. 0 means 2 s.
	AttachTimeout time.Duration
	// ImageDirs are the directories of the files that spec.image may name. If empty, it may not
	// name files.
	ImageDirs confine.Dirs
	// ImageNetworks are networks that images may be downloaded from, in addition to the public
	// Internet.
	ImageNetworks []netip.Prefix
	// Users has one user for each machine. It requires root. If empty, machines run as the
	// manager's user.
	Users UserRange
	// MaxImageBytes limits the size of a downloaded image; 0 means no limit.
	MaxImageBytes int64
	// MaxSavedBytes limits the saved memory of all machines that are asleep; 0 means no limit.
	MaxSavedBytes int64
	// MaxRootDiskBytes limits the disk of a machine without spec.resource.rootDisk; 0 means no
	// limit.
	MaxRootDiskBytes int64
	// ImageTimeout limits the duration of one download; the next attempt resumes a partial
	// download. 0 means 6 h.
	ImageTimeout time.Duration
	// ImageKeep is the time that an unused downloaded image is kept; 0 means indefinitely.
	ImageKeep time.Duration
	// NetworkRanges are the ranges from which namespaces get their networks. Empty means DefaultNetworkRanges.
	NetworkRanges []netip.Prefix
	// Egress says what machines reach outside of the networks of this host.
	Egress network.Egress
	// PublishAddress is the address of the host at which ports of machines are forwarded. The zero value
	// means 127.0.0.1.
	PublishAddress netip.Addr
	// ServiceAddress is the IPv4 address of the host at which the nodes reach machines with a Service. The zero value
	// means that they do not.
	ServiceAddress netip.Addr
	// Log receives messages about events that no caller waits for.
	Log logr.Logger `json:"-"`

	// InstantStart is when machines start from templates. Empty means InstantAuto.
	InstantStart InstantStart

	// stopsOnly means that networks are stopped with their last machine, and not started or changed.
	stopsOnly bool
}

func (o *Options) networkRanges() []netip.Prefix {
	if len(o.NetworkRanges) > 0 {
		return o.NetworkRanges
	}
	return DefaultNetworkRanges
}

func (o *Options) publishAddress() netip.Addr {
	if o.PublishAddress.IsValid() {
		return o.PublishAddress
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// step is called at each point where a crash makes a difference. The crash tests replace it.
var step = func(string) {}

// Driver runs machines.
type Driver struct {
	options   Options
	binary    string
	imageTool string
	kvm       bool
	// version returns what QEMU prints about its version.
	version func() string
	// plugs allows processors to be hot-plugged. Emulated machines get none: each processor needs a
	// part of the buffer for translated code. QEMU flushes a full buffer at any other time, but
	// aborts if it has no room for a new processor ("tcg_region_initial_alloc__locked: assertion
	// failed").
	plugs bool
	// instant starts machines with the default guest from templates.
	instant   bool
	processes *process.Dir
	host      backend.Host
	images    *images
	users     *users
	networks  *networks
	templates *templates
	loaded    *loadedMemories

	// ctx ends with the driver, and with it all tasks. Machines keep running.
	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	// starting limits concurrent starts.
	starting chan struct{}

	// The watchers call the functions of the controllers.
	watcher         backend.Watcher[backend.Identity]
	imageWatcher    backend.Watcher[string]
	diskWatcher     backend.Watcher[backend.DiskIdentity]
	snapshotWatcher backend.Watcher[backend.SnapshotIdentity]

	mu       sync.Mutex
	closed   bool
	machines map[types.UID]*machine
	// imports are the images of VirtualMachineImages, by UID.
	imports map[types.UID]*importedImage
	// disks are the disks of VirtualDisks, by UID.
	disks map[types.UID]*virtualDisk
	// snapshots are the snapshots of VirtualMachineSnapshots, by UID.
	snapshots map[types.UID]*machineSnapshot
}

// Open locks the state directory and attaches to the machines in it. The error is a
// backend.ErrMissing if QEMU is not installed.
func Open(options Options) (*Driver, error) {
	d := &Driver{
		options: options, machines: map[types.UID]*machine{}, imports: map[types.UID]*importedImage{},
		disks: map[types.UID]*virtualDisk{}, snapshots: map[types.UID]*machineSnapshot{},
	}
	var err error
	if d.binary, err = find(Program(), "qemu-system-x86"); err != nil {
		return nil, err
	}
	if d.imageTool, err = find("qemu-img", "qemu-utils"); err != nil {
		return nil, err
	}
	if d.options.StateDir, err = filepath.Abs(options.StateDir); err != nil {
		return nil, fmt.Errorf("open the state directory: %w", err)
	}
	// QEMU has another working directory.
	if d.options.GuestDir, err = filepath.Abs(options.GuestDir); err != nil {
		return nil, fmt.Errorf("find the default guest: %w", err)
	}
	if d.kvm, err = useKVM(options.Accelerator); err != nil {
		return nil, err
	}
	d.version = sync.OnceValue(func() string { return guestboot.Version(d.ctx, d.binary) })
	if err := d.confine(); err != nil {
		return nil, err
	}
	d.plugs = d.kvm
	d.instant = options.InstantStart == InstantAlways || options.InstantStart != InstantNever && !d.kvm
	if err := checkOwner(d.options.StateDir); err != nil {
		return nil, fmt.Errorf("open the state directory: %w", err)
	}
	for _, dir := range []string{d.options.StateDir, d.machinesDir(), d.imagesDir(), d.retainedDir(), d.networksDir(), d.disksDir(), d.snapshotsDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("open the state directory: %w", err)
		}
	}
	if d.processes, err = process.Open(filepath.Join(d.options.StateDir, "processes")); err != nil {
		return nil, fmt.Errorf("open the state directory: %w", err)
	}
	if d.host, err = identify(d.options.StateDir); err != nil {
		return nil, errors.Join(err, d.processes.Close())
	}
	if !options.stopsOnly {
		d.options.saveForStop()
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.starting = make(chan struct{}, max(2, runtime.NumCPU()))
	d.images = newImages(d.imagesDir(), options)
	d.loaded = &loadedMemories{all: map[string]*loadedMemory{}}
	d.networks = &networks{d: d, all: map[string]*namespaceNetwork{}}
	if err := errors.Join(d.openDisks(), d.openSnapshots(), d.openTemplates(), d.attachMachines(), d.openNetworks()); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.releaseLostDisks()
	d.tasks.Go(d.sampleUsage)
	d.tasks.Go(d.collectImages)
	d.awaitAttached()
	return d, nil
}

// attachTimeout is the default of Options.AttachTimeout.
const attachTimeout = 2 * time.Second

// awaitAttached waits for the responses of the machines found by Open, so that their status does
// not change across a restart of the manager. Machines that do not respond are reported as
// unknown or booting.
func (d *Driver) awaitAttached() {
	timeout := cmp.Or(d.options.AttachTimeout, attachTimeout)
	_ = wait.PollUntilContextTimeout(d.ctx, 2*time.Millisecond, timeout, true, func(context.Context) (bool, error) {
		return !slices.ContainsFunc(d.all(), func(m *machine) bool { return !m.hasResponded() }), nil
	})
}

func (d *Driver) machinesDir() string { return machinesDir(d.options.StateDir) }
func (d *Driver) imagesDir() string   { return filepath.Join(d.options.StateDir, "images") }
func (d *Driver) retainedDir() string { return retainedDir(d.options.StateDir) }

// attachMachines attaches to the machines in the state directory.
func (d *Driver) attachMachines() error {
	err := d.openFolders(d.machinesDir(), "machine", func(dir string) error {
		def, err := readDefinition(dir)
		if err != nil {
			return err // the controller knows the UID: its next Create or Delete repairs this
		}
		d.mu.Lock() // disks are being worked on already
		d.machines[def.UID] = newMachine(d, def)
		d.mu.Unlock()
		d.users.adopt(def.UID, def.User)
		return nil
	})
	if err != nil {
		return err
	}
	// The work of an attached machine in the background reads the others.
	for _, m := range d.all() {
		m.attach()
		m.checkFoundDisks()
	}
	return nil
}

// Name implements backend.Driver.
func (d *Driver) Name() string { return Name }

// Capabilities implements backend.Driver.
func (d *Driver) Capabilities() backend.Capabilities {
	return backend.Capabilities{Pause: true, Sleep: true, Disks: true, Service: true, Agent: true, Emulated: !d.kvm}
}

// Watch implements backend.Driver.
func (d *Driver) Watch(notify func(backend.Identity)) { d.watcher.Watch(notify) }

// find returns an existing machine.
func (d *Driver) find(id backend.Identity) (*machine, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("driver qemu is closed: %w", backend.ErrUnavailable)
	}
	m := d.machines[id.UID]
	if m == nil {
		return nil, fmt.Errorf("machine %s: %w", id.UID, backend.ErrNotFound)
	}
	return m, nil
}

// forget removes a deleted machine from memory.
func (d *Driver) forget(m *machine) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.machines[m.id.UID] == m {
		delete(d.machines, m.id.UID)
		d.users.release(m.id.UID)
	}
}

// all returns the machines, sorted.
func (d *Driver) all() []*machine {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]*machine, 0, len(d.machines))
	for _, m := range d.machines {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *machine) int { return strings.Compare(string(a.id.UID), string(b.id.UID)) })
	return all
}

// Observe implements backend.Driver from memory.
func (d *Driver) Observe(_ context.Context, id backend.Identity) (backend.Server, error) {
	m, err := d.find(id)
	if err != nil {
		return backend.Server{}, err
	}
	if m.isFolderMissing() {
		return backend.Server{}, fmt.Errorf("machine %s: its folder %s was removed: %w", id.UID, m.dir, backend.ErrNotFound)
	}
	return m.snapshot(), nil
}

// List implements backend.Driver.
func (d *Driver) List(context.Context) ([]backend.Server, error) {
	var servers []backend.Server
	for _, m := range d.all() {
		servers = append(servers, m.snapshot())
	}
	return servers, nil
}

// Close implements backend.Driver. Machines keep running; tasks are cancelled, and the next manager
// repeats them.
func (d *Driver) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.mu.Unlock()
	d.cancel()
	d.tasks.Wait()
	d.loaded.close()
	return d.processes.Close()
}
