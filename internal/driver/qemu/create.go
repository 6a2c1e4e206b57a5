package qemu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/confine"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/guestimage"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/owner"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/process"
	"github.com/keelson-dev/keelson/internal/sandbox"
)

// serialLimit is the size in bytes at which the serial log is rotated; 0 means the default, see
// process.Spec. Tests change it.
var serialLimit int64

// create creates the disk of a machine. It reuses or replaces the leftovers of earlier
// attempts.
func (m *machine) create(ctx context.Context, machine backend.Machine) error {
	if err := m.killUnrecorded(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return fmt.Errorf("create machine: %w", err)
	}
	if err := m.d.networks.claim(m); err != nil {
		return fmt.Errorf("create machine: %w", err)
	}
	m.mu.Lock()
	user, err := m.d.users.claim(m.id.UID, m.def.User)
	if err == nil {
		m.def.Machine, m.def.User, m.def.Ended = machine, user, nil
		err = m.def.write(m.dir)
	}
	m.mu.Unlock()
	if err != nil {
		return fmt.Errorf("create machine: %w", err)
	}
	step("intent written")
	if err := checkFirmware(machine.Firmware); err != nil {
		return err
	}
	m.d.networks.touch(m.id.Namespace) // others find it by its name
	base, from, err := m.createRoot(ctx, &machine)
	if err != nil {
		return err
	}
	step("disk created")
	m.files.Lock()
	defer m.files.Unlock()
	if err := m.prepareDisks(ctx, machine.Disks, m.progress); err != nil {
		return err
	}
	goesOn, err := m.prepareFork(ctx, machine, base, from)
	if err != nil {
		return err
	}
	err = m.record(func(def *definition) {
		def.Base, def.Created = base, true
		goesOn(def)
	}, func(found *definition) bool { return found.Created })
	if err != nil {
		return fmt.Errorf("create machine: %w", err)
	}
	step("created")
	return nil
}

// createRoot creates the root disk of a new machine, if it has one, and returns its image, and the snapshot that the machine is made
// of.
func (m *machine) createRoot(ctx context.Context, machine *backend.Machine) (*qemu.Image, *snapshotDefinition, error) {
	if machine.Snapshot != "" {
		return m.fork(ctx, machine)
	}
	base, err := m.d.resolveImage(ctx, machine.Namespace, machine.Image, m.progress)
	if err != nil {
		return nil, nil, err
	}
	if base == nil && machine.DiskBytes == 0 {
		return nil, nil, nil
	}
	return base, nil, m.createRootDisk(ctx, base, machine.DiskBytes)
}

// start starts QEMU and returns when its monitor has responded.
func (m *machine) start(ctx context.Context, machine backend.Machine) error {
	select {
	case m.d.starting <- struct{}{}:
		defer func() { <-m.d.starting }()
	case <-ctx.Done():
		return ctx.Err()
	}
	err := m.startOnce(ctx, machine, true)
	if !savedmemory.IsUnusable(err) {
		return err
	}
	m.d.options.Log.V(1).Info("A machine boots although there is a template", "machine", m.id.UID, "why", err.Error())
	if err := m.endQEMU(ctx); err != nil {
		return err
	}
	return m.startOnce(ctx, machine, false)
}

// connect connects the machine to its network in the background: its guest takes longer to boot. wait waits for the end of that.
func (m *machine) connect(ctx context.Context) (wait func()) {
	connected := make(chan struct{})
	go func() {
		defer close(connected)
		_ = m.d.networks.sync(ctx, m.id.Namespace) // an error is in the state of the server, and the next attempt follows
	}()
	return func() { <-connected }
}

// launch starts the process of QEMU that prepare returns.
func (m *machine) launch(ctx context.Context, prepare func(context.Context) (*launch, error)) (*launch, *process.Process, error) {
	m.files.Lock()
	defer m.files.Unlock()
	// A start waits for the clones of its disks, and no clone begins until the machine is on.
	end, err := m.holdDisks(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer end()
	l, err := prepare(ctx)
	if err != nil {
		return nil, nil, err
	}
	endNew, err := m.holdDisks(ctx) // those that it has just claimed
	if err != nil {
		return nil, nil, err
	}
	defer endNew()
	step("prepared")
	// The network knows the rules of the machine before it connects to it.
	if err := m.d.networks.sync(ctx, m.id.Namespace); err != nil {
		return nil, nil, err
	}
	proc, err := m.d.processes.Start(m.d.newSpec(string(m.id.UID), m.dir, l))
	if err != nil {
		return nil, nil, fmt.Errorf("start QEMU: %w", err)
	}
	step("process started")
	m.watch(proc, l)
	return l, proc, nil
}

// newSpec returns the process of a QEMU with its files in dir.
func (d *Driver) newSpec(id, dir string, l *launch) process.Spec {
	path, argv := l.Confinement().Command(d.binary, l.Arguments()...)
	return process.Spec{
		ID: id, Path: path, Argv0: argv[0], Args: argv[1:], WorkDir: dir,
		Env: []string{"PATH=" + os.Getenv("PATH")},
		Log: filepath.Join(dir, serialLog), LogMaxBytes: serialLimit,
	}
}

// untilEnd returns a context that ends with a process.
func untilEnd(ctx context.Context, proc *process.Process) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-proc.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// prepare writes the files that QEMU reads at its start. findMemory returns the memory of a template that it starts from;
// "" if it boots.
func (m *machine) prepare(ctx context.Context, machine backend.Machine, findMemory func(*launch) string) (*launch, error) {
	if err := m.claimUser(); err != nil {
		return nil, err
	}
	if err := m.d.networks.claim(m); err != nil {
		return nil, fmt.Errorf("find an address for the machine: %w", err)
	}
	m.mu.Lock()
	base, ports := m.def.Base, m.def.HostPorts
	m.mu.Unlock()
	l := m.launchOf(machine, base)
	if err := m.fillFiles(ctx, l); err != nil {
		return nil, err
	}
	if l.Root != nil {
		// A machine that boots a kernel may have got a root disk since; create it now.
		if err := m.createRootDisk(ctx, base, machine.DiskBytes); err != nil {
			return nil, err
		}
		if err := giveFile(m.path(diskFile), l.User); err != nil {
			return nil, fmt.Errorf("change the owner of the disk to the user of the machine: %w", err)
		}
		if err := m.growDisk(ctx, diskFile, machine.DiskBytes); err != nil {
			return nil, err
		}
	}
	if err := m.prepareDisks(ctx, machine.Disks, m.progress); err != nil {
		return nil, err
	}
	for _, disk := range machine.Disks {
		record, found := m.diskRecord(disk.Name)
		if disk.VirtualDisk != "" && (!found || !m.ownsDisk(&record)) {
			continue // it is plugged as soon as it is free
		}
		l.addDisks(m.d.disksDir(), record)
	}
	if !machine.KeepsSeed {
		if err := writeSeed(m.path(seedFile), &machine); err != nil {
			return nil, err
		}
	}
	published, err := m.d.hostPorts(machine.Ports, ports, nil)
	if err != nil {
		return nil, err
	}
	l.Memory = findMemory(l)
	m.removeSockets()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.def.Machine, m.def.Started, m.def.HostPorts, m.def.BootMemory = machine, &machine, published, machine.MemoryBytes
	if !machine.KeepsSeed {
		m.def.SeedSum, m.def.StartedSeedSum = seedSum(machine.Seed), seedSum(machine.Seed)
	}
	m.def.StopRun, m.def.Shape = "", l.Shape()
	m.def.MemoryShared = l.IsInstant()
	m.def.Owner = owner.Record{
		Phase: owner.Starting, Boot: &owner.Boot{LogBytes: m.logBytes()}, BootTime: m.def.Owner.BootTime,
		Owed: owner.Owed{Clock: l.IsInstant(), Start: l.IsInstant()},
	}
	if err := m.def.write(m.dir); err != nil {
		return nil, fmt.Errorf("write machine: %w", err)
	}
	return l, nil
}

// removeSockets removes the sockets of an earlier run, which QEMU replaces as well.
func (m *machine) removeSockets() {
	for _, socket := range []string{qemu.MonitorSocket, qemu.HumanSocket, qemu.ConsoleSocket, qemu.AgentSocket, qemu.NetworkSocket} {
		_ = os.Remove(m.path(socket))
	}
}

// waitUp waits until the monitor of a new process responds. A process that exits before that
// counts as not started: its last output is the reason.
func (m *machine) waitUp(ctx context.Context, proc *process.Process, confinement *sandbox.Spec) error {
	o := m.own()
	if o == nil {
		return nil // it was killed from outside, and its end is recorded
	}
	waiting, cancel := context.WithTimeout(ctx, monitorStartTimeout)
	defer cancel()
	err := o.Await(waiting, func(state owner.State) bool { return state.Answers })
	if !errors.Is(err, owner.ErrNotOn) {
		return ctx.Err() // a monitor that does not answer is reported
	}
	if err := m.waitOff(ctx); err != nil {
		return err
	}
	if status := proc.Status(); status.ExitCode > 0 {
		return fmt.Errorf("QEMU did not start: %s", lastOutput(confinement.Named(status.LogTail)))
	}
	return nil // it was killed from outside
}

// maxOutput limits the output of a process in a message, in bytes.
const maxOutput = 300

// lastOutput returns the last output of a process, in one line without its name and time. The
// output may come from a guest's serial console.
func lastOutput(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	last := lines[len(lines)-1]
	if _, words, found := strings.Cut(last, "qemu-system-"+arch()+": "); found {
		last = words
	}
	last = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, last)
	if len(last) > maxOutput {
		last = strings.ToValidUTF8(last[:maxOutput], "") + " ..."
	}
	return cmp.Or(strings.TrimSpace(last), "no output")
}

// kernelFor fills in the kernel, if the machine does not boot from its disk.
func (m *machine) kernelFor(image *v1alpha1.Image, l *launch) error {
	switch {
	case image == nil:
		guest, err := guestimage.Read(m.d.options.GuestDir)
		if err != nil {
			return err
		}
		l.Kernel, l.Initrd, l.Cmdline = guest.Kernel, guest.Initramfs, guest.Cmdline
		if err := checkGuestMemory(guest, l.machine.MemoryBytes); err != nil {
			return err
		}
	case image.Kernel != "":
		if err := m.d.givenKernel(image, l); err != nil {
			return err
		}
	default:
		return nil
	}
	var err error
	if l.Kernel, err = readable(l.Kernel, m.path(kernelFile), l.User); err == nil && l.Initrd != "" {
		l.Initrd, err = readable(l.Initrd, m.path(initrdFile), l.User)
	}
	return err
}

// findCDROM fills in the image in the CD-ROM drive.
func (m *machine) findCDROM(ctx context.Context, l *launch) error {
	if l.machine.CDROM == nil {
		return nil
	}
	var err error
	if l.CDROM, err = m.d.resolveImage(ctx, m.id.Namespace, l.machine.CDROM, m.progress); err != nil {
		return fmt.Errorf("spec.cdrom: %w", err)
	}
	return nil
}

// givenKernel fills in the kernel of an image.
func (d *Driver) givenKernel(image *v1alpha1.Image, l *launch) error {
	var err error
	if l.Kernel, err = d.file("spec.image.kernel", image.Kernel); err != nil {
		return err
	}
	if image.Initrd != "" {
		if l.Initrd, err = d.file("spec.image.initrd", image.Initrd); err != nil {
			return err
		}
	}
	l.Cmdline = image.Cmdline
	return nil
}

// file returns the path of a file, if it is allowed.
func (d *Driver) file(field, path string) (string, error) {
	if _, err := d.options.ImageDirs.Stat(path); err != nil {
		return "", d.fileError(field, path, err)
	}
	return filepath.Clean(path), nil
}

// fileError returns the error for a file that cannot be used.
func (d *Driver) fileError(field, path string, err error) error {
	if errors.Is(err, confine.ErrOutside) || errors.Is(err, confine.ErrForm) {
		return fmt.Errorf("%w: %s %s: %s", backend.ErrInvalid, field, path, describePathError(err, d.options.ImageDirs))
	}
	return fmt.Errorf("%s %s: %w", field, path, err)
}

// describePathError describes why a path is not allowed; err is an ErrOutside or an ErrForm.
func describePathError(err error, dirs confine.Dirs) string {
	if errors.Is(err, confine.ErrOutside) {
		return fmt.Sprintf("%v; virtualMachines.imageDirs allows: %s", err, dirs)
	}
	return err.Error()
}
