package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/guest/internal/agent"
	"github.com/keelson-dev/keelson/guest/internal/modules"
	"github.com/keelson-dev/keelson/guest/internal/network"
	"github.com/keelson-dev/keelson/guest/internal/seed"
	"github.com/keelson-dev/keelson/guest/internal/system"
)

// initProcess is what runs as the first process.
type initProcess struct {
	console   *system.Console
	processes *system.Processes
	loader    *modules.Loader
	network   *network.Network
	// endings gets why the guest should stop; only the first counts.
	endings chan system.Ending
	// online is closed when the first interface has an address.
	online     chan struct{}
	onlineOnce sync.Once
	// template means that the guest waits until it is a machine; answering is closed when its agent may answer, and started
	// when it is a machine.
	template           bool
	answering, started chan struct{}
	startOnce          sync.Once

	// settled is closed when the seed is applied.
	settled chan struct{}
	freezer system.Freezer
	// shellOnce starts the shell on the console.
	shellOnce sync.Once

	mu sync.Mutex
	// served are the devices, by name, that something in here takes care of.
	served map[string]bool

	// applying is held while the seed is applied. It protects the rest.
	applying sync.Mutex
	// disks and interfaces wait for the seed, which may say what to do with an
	// interface, and is on a disk. It is nil until then.
	disks, interfaces []string
	seed              *seed.Seed
	// endSSH ends the SSH server, and leave the configuration of the interfaces, by
	// their names. They wait until that is so.
	endSSH func()
	leave  map[string]func()
	// forked is the hardware address that the last fork gave the guest.
	forked string
	// named means that the seed has a name for the guest.
	named atomic.Bool
}

func newInit(console *system.Console) *initProcess {
	in := &initProcess{
		console:   console,
		processes: system.NewProcesses(),
		network:   network.New("/etc/resolv.conf"),
		endings:   make(chan system.Ending, 1),
		online:    make(chan struct{}),
		template:  isTemplate(),
		answering: make(chan struct{}),
		started:   make(chan struct{}),
		settled:   make(chan struct{}),
		served:    map[string]bool{},
		leave:     map[string]func(){},
		endSSH:    func() {},
	}
	if !in.template {
		close(in.answering)
	}
	in.network.Printf = console.Printf
	in.network.Ready = in.interfaceReady
	return in
}

// run starts everything and returns when the guest should stop, and how.
func (in *initProcess) run(ctx context.Context) system.Ending {
	loader, err := modules.NewLoader()
	if err != nil {
		in.console.Printf("No drivers: %v", err)
	}
	in.loader = loader
	go in.processes.Reap(ctx)
	go in.watchSignals(ctx)
	go func() {
		handle := func(event system.Uevent) { in.device(ctx, event) }
		settled := func() {
			if in.template {
				in.awaitStart(ctx)
				system.AnnounceFound(handle)
			}
			in.settle(ctx)
		}
		if err := system.Watch(ctx, handle, settled); err != nil {
			in.console.Printf("Devices that come from now on are not noticed: %v", err)
		}
	}()
	return <-in.endings
}

// end asks for the end of the guest.
func (in *initProcess) end(ending system.Ending) {
	select {
	case in.endings <- ending:
	default: // it ends already
	}
}

// watchSignals listens to the programs reboot, poweroff and halt, and to
// Control-Alt-Delete.
func (in *initProcess) watchSignals(ctx context.Context) {
	endings := map[os.Signal]system.Ending{
		unix.SIGINT: system.Restart, unix.SIGTERM: system.Restart,
		unix.SIGUSR1: system.Halt, unix.SIGUSR2: system.PowerOff,
	}
	signals := make(chan os.Signal, 1)
	for s := range endings {
		signal.Notify(signals, s)
	}
	select {
	case <-ctx.Done():
	case s := <-signals:
		in.end(endings[s])
	}
}

// device takes care of a device that is there or has come.
func (in *initProcess) device(ctx context.Context, event system.Uevent) {
	if event.Action == "remove" && event.Subsystem == "block" {
		if err := system.UnlinkDisk("/sys" + event.Path); err != nil {
			in.console.Printf("%v", err)
		}
	}
	if event.Action != "add" {
		return
	}
	if event.Alias != "" && in.loader != nil {
		if err := in.loader.LoadFor(event.Alias); err != nil {
			in.console.Printf("A device has no driver: %v", err)
		}
	}
	name := filepath.Base(event.Path)
	switch {
	case event.Subsystem == "virtio-ports":
		in.serve(name, func() error { return in.serveAgent(ctx, name) })
	case event.Subsystem == "input" && strings.HasPrefix(name, "event"):
		in.serve(name, func() error {
			return system.WatchPowerButton(ctx, "/dev/input/"+name, func() {
				in.console.Printf("The power button was pressed")
				in.end(system.PowerOff)
			})
		})
	case event.Subsystem == "block":
		in.applying.Lock()
		in.disks = append(in.disks, name) // only what is there at the start counts
		in.applying.Unlock()
		if err := system.LinkDisk("/sys" + event.Path); err != nil {
			in.console.Printf("%v", err)
		}
	case event.Subsystem == "net":
		in.applying.Lock()
		in.interfaces = append(in.interfaces, name)
		if in.seed != nil {
			in.startInterfaces(ctx)
		}
		in.applying.Unlock()
	case event.Subsystem == "cpu" || event.Subsystem == "memory":
		online, err := system.SetOnline("/sys" + event.Path)
		if err != nil {
			in.console.Printf("%v", err)
		} else if online {
			in.console.Printf("%s is in use now", name)
		}
	}
}

// serve runs work for a device in the background, once at a time, however often the
// device is announced.
func (in *initProcess) serve(name string, work func() error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.served[name] {
		return
	}
	in.served[name] = true
	go func() {
		if err := work(); err != nil {
			in.console.Printf("%s: %v", name, err)
		}
		in.mu.Lock()
		defer in.mu.Unlock()
		delete(in.served, name)
	}()
}

// serveAgent answers the host, if the port is the one for that.
func (in *initProcess) serveAgent(ctx context.Context, port string) error {
	name, err := os.ReadFile("/sys/class/virtio-ports/" + port + "/name")
	if err != nil || strings.TrimSpace(string(name)) != agent.PortName {
		return nil // a port for somebody else; most have no name
	}
	select {
	case <-ctx.Done():
		return nil
	case <-in.answering:
	}
	in.console.Printf("The guest agent answers")
	return agent.ServePort(ctx, "/dev/"+port, guest{in, ctx, &in.freezer})
}

// guest is what the agent knows of the system. What it starts ends with the context.
type guest struct {
	*initProcess
	ctx context.Context
	*system.Freezer
}

func (guest) Hostname() (string, error)              { return os.Hostname() }
func (guest) OSInfo() (agent.OSInfo, error)          { return system.OSInfo() }
func (guest) Now() time.Time                         { return time.Now() }
func (guest) SetTime(t time.Time) error              { return system.SetTime(t) }
func (guest) Interfaces() ([]agent.Interface, error) { return network.Interfaces() }

func (g guest) Shutdown(mode agent.ShutdownMode) {
	endings := map[agent.ShutdownMode]system.Ending{
		agent.PowerDown: system.PowerOff, agent.Reboot: system.Restart, agent.Halt: system.Halt,
	}
	g.console.Printf("The host asks for %s", mode)
	g.end(endings[mode])
}
