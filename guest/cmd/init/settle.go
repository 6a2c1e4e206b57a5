package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/guest/internal/network"
	"github.com/keelson-dev/keelson/guest/internal/rootdisk"
	"github.com/keelson-dev/keelson/guest/internal/seed"
	"github.com/keelson-dev/keelson/guest/internal/system"
)

// defaultHostname is the guest's name until somebody gives it another.
const defaultHostname = "keelson"

// settle runs when all devices that the machine was started with are there: it
// applies the seed and starts what may depend on it.
func (in *initProcess) settle(ctx context.Context) {
	in.applying.Lock()
	defer in.applying.Unlock()
	if err := network.Loopback(); err != nil {
		in.console.Printf("The guest cannot speak to itself: %v", err)
	}
	in.mountRoot()
	in.applySeed()
	found := in.seed
	for _, sentence := range found.Ignored {
		in.console.Printf("Note: %s", sentence)
	}
	first := isFirstBoot(found)
	if first {
		in.writeFiles(found.Files)
	}
	close(in.settled)
	in.startSSH(ctx)
	go func() {
		in.runCommands(ctx, found.EarlyCommands)
		if first {
			in.runWhenOnline(ctx, found.Commands)
			in.recordFirstBoot(ctx, found)
		}
	}()
	in.startInterfaces(ctx)
}

// applySeed reads the seed and names the guest; in.applying is held.
func (in *initProcess) applySeed() {
	in.seed = in.findSeed()
	in.named.Store(in.seed.Hostname != "")
	in.setHostname(cmp.Or(in.seed.Hostname, defaultHostname), in.seed.Domain)
	in.network.Hostname = in.seed.Hostname
}

// mountRoot makes the root file system persistent if the machine has a root disk.
func (in *initProcess) mountRoot() {
	device := rootdisk.Find(in.disks)
	if device == "" {
		return
	}
	const directory = "/.root"
	err := rootdisk.Prepare(device, directory, in.processes.Run)
	if err == nil && in.loader != nil {
		err = in.loader.Load("overlay")
	}
	if err == nil {
		err = rootdisk.Switch(directory, system.Targets())
	}
	if err != nil {
		in.console.Printf("The root file system is in memory, and nothing lasts: %s: %v", device, err)
		return
	}
	in.console.Printf("The root file system is on %s", device)
}

// instanceFile has the instance of the first boot, as with cloud-init.
const instanceFile = "/var/lib/cloud/data/instance-id"

// isFirstBoot reports whether the files and commands of the seed are due: once for each instance, and again if the first
// boot was interrupted.
func isFirstBoot(found *seed.Seed) bool {
	known, err := os.ReadFile(instanceFile)
	return err != nil || found.InstanceID == "" || strings.TrimSpace(string(known)) != found.InstanceID
}

// recordFirstBoot records that the files and commands of the seed are done.
func (in *initProcess) recordFirstBoot(ctx context.Context, found *seed.Seed) {
	if ctx.Err() != nil || found.InstanceID == "" {
		return
	}
	if err := writeFile(seed.File{Path: instanceFile, Content: []byte(found.InstanceID + "\n"), Mode: 0o644}); err != nil {
		in.console.Printf("The commands of the seed will run again: %v", err)
	}
}

// findSeed reads the first disk that is labelled as a seed. Without one, or if it is
// broken, the seed is empty.
func (in *initProcess) findSeed() *seed.Seed {
	for _, disk := range in.disks {
		found, err := in.readSeed("/dev/" + disk)
		if err != nil {
			in.console.Printf("The seed on %s cannot be used: %v", disk, err)
			continue
		}
		if found != nil {
			in.console.Printf("The seed is on %s", disk)
			return found
		}
	}
	return &seed.Seed{}
}

// readSeed returns nil if the disk is no seed.
func (in *initProcess) readSeed(device string) (*seed.Seed, error) {
	disk, err := os.Open(device)
	if err != nil {
		return nil, fmt.Errorf("opening the disk: %w", err)
	}
	defer disk.Close()
	kind, isSeed, err := seed.Filesystem(disk)
	if err != nil || !isSeed {
		return nil, err
	}
	drivers := map[string][]string{"iso9660": {"isofs"}, "vfat": {"nls_cp437", "nls_ascii", "nls_utf8", "vfat"}}
	if in.loader != nil {
		for _, name := range drivers[kind] {
			if err := in.loader.Load(name); err != nil {
				return nil, err
			}
		}
	}
	target := "/run/seed"
	if err := os.MkdirAll(target, 0o700); err != nil {
		return nil, err
	}
	if err := unix.Mount(device, target, kind, unix.MS_RDONLY|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_NOSUID, ""); err != nil {
		return nil, fmt.Errorf("mounting it as %s: %w", kind, err)
	}
	found, err := seed.Read(os.DirFS(target))
	return found, errors.Join(err, unix.Unmount(target, 0))
}

// setHostname sets the name of the guest and lets it find itself by that.
func (in *initProcess) setHostname(name, domain string) {
	names := name
	if domain != "" {
		names = name + "." + domain + " " + name
	}
	hosts := "127.0.0.1 localhost\n::1 localhost\n127.0.1.1 " + names + "\n"
	err := errors.Join(
		unix.Sethostname([]byte(name)),
		os.WriteFile("/etc/hostname", []byte(name+"\n"), 0o644),
		os.WriteFile("/etc/hosts", []byte(hosts), 0o644),
	)
	if err != nil {
		in.console.Printf("The guest cannot be named %s: %v", name, err)
	}
}

// writeFiles writes what the seed wants written, with the folders above.
func (in *initProcess) writeFiles(files []seed.File) {
	for _, file := range files {
		if err := writeFile(file); err != nil {
			in.console.Printf("The seed's file %s is not there: %v", file.Path, err)
		}
	}
}

func writeFile(file seed.File) error {
	if err := os.MkdirAll(filepath.Dir(file.Path), 0o755); err != nil {
		return err
	}
	flags := os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	if file.Append {
		flags = os.O_CREATE | os.O_WRONLY | os.O_APPEND
	}
	f, err := os.OpenFile(file.Path, flags, file.Mode)
	if err != nil {
		return err
	}
	_, err = f.Write(file.Content)
	// The mode of a file that was there already is not that of OpenFile.
	return errors.Join(err, f.Chmod(file.Mode), f.Close())
}

// startInterfaces configures the interfaces that have come; in.applying is held.
func (in *initProcess) startInterfaces(ctx context.Context) {
	for _, name := range in.interfaces {
		i, err := net.InterfaceByName(name)
		if err != nil || !network.NeedsConfiguration(i) || in.leave[name] != nil {
			continue
		}
		static := staticSettings(in.seed.Network.For(name, i.HardwareAddr.String()))
		keeping, cancel := context.WithCancel(ctx)
		ended := make(chan struct{})
		in.leave[name] = func() { cancel(); <-ended }
		go func() {
			defer close(ended)
			if err := in.network.Keep(keeping, name, static); err != nil {
				in.console.Printf("%s: %v", name, err)
			}
		}()
	}
	in.interfaces = nil
}

// staticSettings returns nil for DHCP.
func staticSettings(config *seed.InterfaceConfig) *network.Settings {
	if config == nil || config.DHCP {
		return nil
	}
	settings := &network.Settings{
		Addresses: config.Addresses, Nameservers: config.Nameservers, Search: config.Search, MTU: config.MTU,
	}
	for _, route := range config.Routes {
		settings.Routes = append(settings.Routes, network.Route{To: route.To, Via: route.Via})
	}
	return settings
}

// interfaceReady runs when an interface has got its settings. The network names the
// guest if nobody else did.
func (in *initProcess) interfaceReady(_ string, settings network.Settings) {
	if name, domain, _ := strings.Cut(settings.Hostname, "."); name != "" && !in.named.Load() {
		in.setHostname(name, domain)
	}
	in.onlineOnce.Do(func() { close(in.online) })
}
