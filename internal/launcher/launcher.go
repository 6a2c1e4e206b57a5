package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/keelson-dev/keelson/internal/driver/guestboot"
	"github.com/keelson-dev/keelson/internal/driver/guestimage"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/owner"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/network"
)

// Dirs are the folders of a machine.
type Dirs struct {
	Run, Seed, Guest, Image, Disk, Disks, Snapshot string
	// ResolvConf is the file with the search domains.
	ResolvConf string
}

// PodDirs are the folders in a Pod.
func PodDirs() Dirs {
	return Dirs{Run: RunDir, Seed: SeedDir, Guest: GuestDir, Image: ImageDir, Disk: DiskDir, Disks: DisksDir, Snapshot: SnapshotDir, ResolvConf: "/etc/resolv.conf"}
}

// launcher runs a machine.
type launcher struct {
	definition Definition
	dirs       Dirs
	ready      *readiness
	access     *access
	base       *qemu.Image
	// locks are those of the volumes of disks.
	locks         []*os.File
	searchDomains []string
	console       *os.File
	messages      io.Writer
	// version is what QEMU prints about its version, if several processors are emulated.
	version string
	// shape is a digest of its devices, and processors identifies its processors, for saved memory.
	shape, processors string
	// owner owns QEMU; nil while it does not run. silent means that QEMU was killed because it did not answer.
	owner  atomic.Pointer[owner.Owner]
	silent bool
	// showing is held while its state is shown.
	showing sync.Mutex
	// powersOff means that the Pod is about to be deleted to power the machine off.
	powersOff atomic.Bool
	// memory is the saved memory that the machine goes on with; nil if it boots.
	memory *savedMemory

	// changing is held while the running machine is changed.
	changing sync.Mutex
	// network is the switch of the machine.
	network *network.Client

	// takes are the copies of its disks for snapshots.
	takes sync.WaitGroup
}

// Run runs a machine until it ends. When ctx ends, it presses the power button, until the guest has powered off: kubelet
// limits the time. The output of the serial console goes to console, messages of QEMU to messages.
func Run(ctx context.Context, definition Definition, dirs Dirs, console *os.File, messages io.Writer) Ended {
	return newLauncher(definition, dirs, console, messages).serve(ctx)
}

func newLauncher(definition Definition, dirs Dirs, console *os.File, messages io.Writer) *launcher {
	l := &launcher{definition: definition, dirs: dirs, ready: newReadiness(), access: &access{dirs: dirs}, console: console, messages: messages}
	l.access.monitor = l.monitor
	return l
}

// serve runs the machine, and serves kubelet, the manager and those who take snapshots.
func (l *launcher) serve(ctx context.Context) (ended Ended) {
	defer func() { ended.Message = ending(ended.Message) }()
	if l.definition.ImageURL != "" {
		l.ready.setProgress("its disk is being prepared") // until prepare has ended
	}
	listener, err := net.Listen("tcp", ":"+strconv.Itoa(int(l.definition.ReadyPort)))
	if err != nil {
		return Ended{Cause: CauseStartFailed, Message: err.Error()}
	}
	probes, mux := http.NewServeMux(), http.NewServeMux()
	probes.Handle(ReadyPath, l.ready)
	mux.Handle(ReadyPath, l.ready)
	l.access.register(mux)
	mux.HandleFunc("POST "+DialPath, l.access.guard(l.dial))
	mux.HandleFunc("POST "+GuestPath, l.access.guard(l.ready.serveGuest))
	mux.HandleFunc("POST "+SleepPath, l.access.guard(l.serveSleep))
	mux.HandleFunc("POST "+MemoryPath, l.access.guard(l.serveMemory))
	mux.HandleFunc("POST "+GrowPath, l.access.guard(l.serveGrow))
	mux.HandleFunc("POST "+PortsPath, l.access.guard(l.servePorts))
	mux.HandleFunc("POST "+PausePath, l.access.guard(l.servePower(owner.Pause)))
	mux.HandleFunc("POST "+ResumePath, l.access.guard(l.servePower(owner.On)))
	mux.HandleFunc("POST "+PowerOffPath, l.access.guard(func(http.ResponseWriter, *http.Request) { l.powersOff.Store(true) }))
	gate := newGate(listener)
	go gate.serve(mux, probes)
	defer gate.close()
	defer func() {
		for _, lock := range l.locks {
			_ = lock.Close() // nothing was written
		}
	}()
	config, err := l.prepare(ctx)
	l.ready.setProgress("")
	if err != nil {
		if ctx.Err() != nil {
			return Ended{Cause: CauseHost, Message: "it was stopped before it started"}
		}
		if savedmemory.IsUnusable(err) {
			return Ended{Cause: CauseMemoryLost, Message: err.Error()}
		}
		return Ended{Cause: CauseStartFailed, Message: err.Error()}
	}
	stopTakes, err := l.listenForTakes()
	if err != nil {
		_, _ = fmt.Fprintf(l.messages, "No snapshots of this run can be taken: %v\n", err) // a message only
	} else {
		defer stopTakes()
	}
	stopNetwork, err := l.serveNetwork()
	if err != nil {
		return Ended{Cause: CauseStartFailed, Message: err.Error()}
	}
	defer stopNetwork()
	return l.run(ctx, config)
}

// prepare makes everything that QEMU needs, and returns it.
func (l *launcher) prepare(ctx context.Context) (*qemu.Config, error) {
	raw, err := os.ReadFile(l.dirs.ResolvConf)
	if err == nil {
		l.searchDomains = searchDomains(string(raw))
	}
	for _, disk := range l.definition.AllDisks() {
		if err := l.lockVolume(ctx, filepath.Dir(l.diskPath(disk))); err != nil {
			return nil, fmt.Errorf("the %s disk: %w", disk.Name, err)
		}
	}
	if err := l.finishRestore(l.definition.AllDisks()); err != nil {
		return nil, err
	}
	guest, err := l.findSystem()
	if err == nil && l.definition.KVM {
		err = checkKVM(qemu.KVMDevice)
	}
	if err != nil {
		return nil, err
	}
	if !l.definition.KVM && l.definition.CPUs > 1 {
		l.version = guestboot.Version(ctx, program)
	}
	l.shape, l.processors = l.shapeOf(guest, l.definition.identity()), l.config(guest).Processors()
	if err := l.findMemory(guest); err != nil { // before the disks change
		return nil, err
	}
	if err := errors.Join(l.makeSeed(), l.makeDisks(ctx)); err != nil {
		return nil, err
	}
	return l.config(guest), nil
}

// checkKVM returns an error if the device of hardware virtualization cannot be used. There is no fallback to emulation, which would be
// many times slower than what the administrator has configured.
func checkKVM(device string) error {
	file, err := os.OpenFile(device, os.O_RDWR, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the Pod has no %s: the resource in virtualMachines.kvmResource must be that of a device plugin which provides it", device)
	case err != nil:
		return fmt.Errorf("%w: set virtualMachines.kvmGroup to the ID of the group of the device, or let the runtime of the node change its owner, see docs/drivers.md", err)
	}
	return file.Close()
}

// findSystem finds the image of the root disk, or the default guest, which it returns.
func (l *launcher) findSystem() (guest *guestimage.Guest, err error) {
	if l.definition.Image {
		l.base, err = findImage(l.dirs.Image)
	}
	if err != nil || l.definition.OwnSystem() {
		return nil, err
	}
	found, err := guestimage.Read(l.dirs.Guest)
	if err != nil {
		return nil, fmt.Errorf("the image of the default guest (--vm-guest-image): %w", err)
	}
	if err := guestimage.CheckMemory(found.MinimumMemory, l.definition.MemoryBytes); err != nil {
		return nil, fmt.Errorf("spec.resource.memory: %w", err)
	}
	l.ready.setMinimumMemory(found.MinimumMemory)
	return &found, nil
}

// searchDomains returns the search domains in a resolv.conf.
func searchDomains(conf string) (domains []string) {
	for line := range strings.Lines(conf) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "search" {
			domains = words[1:] // the last line counts
		}
	}
	return domains
}
