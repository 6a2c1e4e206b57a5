package qemu

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/internal/driver/diskimage"
	"github.com/keelson-dev/keelson/internal/driver/guestboot"
	"github.com/keelson-dev/keelson/internal/sandbox"
)

// full returns a machine with everything.
func full() *Config {
	return &Config{
		Name: "default/vm", UUID: "0b5b4d8e-0000-4000-8000-0000000000bb", CPUs: 1, MemoryBytes: 1 << 30, KVM: true, Log: "serial.log", Display: true,
		User: &sandbox.User{UID: 2100000007, GID: 2100000007}, Programs: []string{"/opt/qemu/lib"},
		Root: &Disk{Name: RootDisk, Path: "disk.qcow2", Base: &Image{Path: "/images/base", Format: diskimage.Qcow2}}, Seed: "seed.img",
		Disks:  []Disk{{Name: "data", Path: "data.qcow2", Base: &Image{Path: "/images/data", Format: diskimage.Qcow2}}, {Name: "log", Path: "log.qcow2"}},
		Kernel: "/images/kernel", Initrd: "initrd", Cmdline: "quiet",
	}
}

// A machine can access only its own files.
func TestConfinement(t *testing.T) {
	files := []sandbox.File{
		{Path: "serial.log", Access: sandbox.AppendOnly}, {Path: "disk.qcow2", Access: sandbox.ReadWrite},
		{Path: "/images/base", Access: sandbox.ReadOnly},
		{Path: "data.qcow2", Access: sandbox.ReadWrite}, {Path: "/images/data", Access: sandbox.ReadOnly},
		{Path: "log.qcow2", Access: sandbox.ReadWrite}, {Path: "seed.img", Access: sandbox.ReadOnly},
		{Path: "/images/kernel", Access: sandbox.ReadOnly}, {Path: "initrd", Access: sandbox.ReadOnly},
	}
	want := sandbox.Spec{
		User: &sandbox.User{UID: 2100000007, GID: 2100000007}, Files: files,
		Sockets: []string{"qmp.sock", "monitor.sock", "console.sock", "agent.sock", "network.sock"},
		Read:    []string{"/sys/devices/system", "/opt/qemu/lib"}, Devices: []string{"/dev/kvm"}, WorkDir: "/", NoConnect: true,
	}
	c := full()
	got, h := c.confinement()
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(handles{
		log: 100, root: 101, base: 102, seed: 106, kernel: 107, initrd: 108, disks: []int{103, 105}, bases: []int{104, 0},
		monitor: 109, human: 110, console: 111, agent: 112, network: 113,
	}, h, cmp.AllowUnexported(handles{})); diff != "" {
		t.Errorf("descriptors (-want +got):\n%s", diff)
	}
	// In a Pod, QEMU has the console of its container, and the locks of its volumes.
	c.Log, c.LogFD, c.Held = "", 3, []int{4}
	want.Inherited, want.Files = []int{4, 3}, files[1:]
	got, h = c.confinement()
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Errorf("in a Pod (-want +got):\n%s", diff)
	}
	if h.log != 101 || h.root != 102 || h.agent != 113 {
		t.Errorf("in a Pod the descriptors are %+v", h)
	}
}

// No image makes QEMU open further files.
func TestBackingFilesAreExplicit(t *testing.T) {
	for _, argument := range full().Arguments() {
		var node map[string]any
		if json.Unmarshal([]byte(argument), &node) != nil || node["driver"] != diskimage.Qcow2 {
			continue
		}
		if backing, given := node["backing"]; !given || backing != nil && backing != "db-root" && backing != "db-data" {
			t.Errorf("a qcow2 node without an explicit backing file: %v", node)
		}
	}
}

// Each value of a user is a single argument and no option: the command lines of a hostile and a harmless machine differ only in those
// values.
func TestNothingIsInjectedIntoQEMU(t *testing.T) {
	launched := func(name, cmdline string) []string {
		c := full()
		c.Name, c.Cmdline = name, cmdline
		return c.Arguments()
	}
	harmless := launched("default/vm", "quiet")
	hostile := launched("default/vm,debug-threads=off,process=x", "-monitor stdio,readline -drive file=/etc/shadow")
	if len(harmless) != len(hostile) {
		t.Fatalf("%d arguments became %d: %q", len(harmless), len(hostile), hostile)
	}
	var differ []string
	for i := range harmless {
		if harmless[i] != hostile[i] {
			differ = append(differ, harmless[i-1]+" "+hostile[i])
		}
	}
	want := []string{
		"-name guest=default/vm,,debug-threads=off,,process=x,debug-threads=on",
		"-append -monitor stdio,readline -drive file=/etc/shadow",
	}
	if diff := cmp.Diff(want, differ); diff != "" {
		t.Errorf("differing arguments (-want +got):\n%s", diff)
	}
}

// A guest that breaks out finds itself in a process that can neither start others nor gain privileges.
func TestQEMUIsConfined(t *testing.T) {
	args := full().Arguments()
	i := slices.Index(args, "-sandbox")
	if i < 0 {
		t.Fatalf("no -sandbox in %q", args)
	}
	if want := "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"; args[i+1] != want {
		t.Errorf("-sandbox %s, want %s", args[i+1], want)
	}
}

// The processors are those of the host with KVM, and emulated without. The model of the user counts in both cases.
func TestProcessors(t *testing.T) {
	const old, fixed = "QEMU emulator version 7.2.22", "QEMU emulator version " + guestboot.Fixed + ".0"
	for name, test := range map[string]struct {
		config             Config
		accelerator, model string
		ofHost             bool
	}{
		"KVM":                           {Config{CPUs: 4, CodeMiB: 32, KVM: true}, "kvm", "host", true},
		"KVM, of the user":              {Config{CPUs: 2, KVM: true, CPUModel: "EPYC"}, "kvm", "EPYC", true},
		"emulated":                      {Config{CPUs: 1, CodeMiB: 32}, "tcg,thread=multi,tb-size=32", "max", false},
		"emulated, of the user":         {Config{CPUs: 1, CPUModel: "qemu64"}, "tcg,thread=multi", "qemu64", false},
		"more processors run more code": {Config{CPUs: 4, CodeMiB: 32, Version: fixed}, "tcg,thread=multi,tb-size=128", "max", false},
		"processors that race":          {Config{CPUs: 2, CodeMiB: 32, Version: old}, "tcg,thread=single,tb-size=64", "max", false},
	} {
		args := test.config.Arguments()
		for flag, want := range map[string]string{"-accel": test.accelerator, "-cpu": test.model} {
			if got := args[slices.Index(args, flag)+1]; got != want {
				t.Errorf("%s: %s %s, want %s", name, flag, got, want)
			}
		}
		if got := test.config.Processors(); (got == test.model) == test.ofHost || !strings.HasPrefix(got, test.model) {
			t.Errorf("%s: saved memory is for the processors %q", name, got)
		}
	}
}

// Saved memory fits every QEMU with the same devices, whatever is outside of them, or comes and goes.
func TestShape(t *testing.T) {
	c := full()
	shape := c.Shape()
	for name, test := range map[string]struct {
		change func(*Config)
		fits   bool
	}{
		"another version": {func(c *Config) { c.Version = "QEMU emulator version 7.2.22" }, true},
		"no other disks":  {func(c *Config) { c.Disks = nil }, true},
		"it waits":        {func(c *Config) { c.Halted, c.Saved = true, &Plugged{} }, true},
		"another kernel":  {func(c *Config) { c.Cmdline = "debug" }, true},
		"more memory":     {func(c *Config) { c.MemoryBytes *= 2 }, false},
		"no root disk":    {func(c *Config) { c.Root = nil }, false},
		"another machine": {func(c *Config) { c.UUID = "0b5b4d8e-0000-4000-8000-0000000000cc" }, false},
		"another address": {func(c *Config) { c.MAC = "52:54:00:00:00:01" }, false},
		"no display":      {func(c *Config) { c.Display = false }, false},
		"UEFI":            {func(c *Config) { c.Firmware, c.Vars = "code", "vars" }, false},
		"a CD-ROM drive":  {func(c *Config) { c.CDROM = &Image{Path: "cd", Format: diskimage.Raw} }, false},
		"more processors": {func(c *Config) { c.CPUs = 2 }, false},
		"room for memory": {func(c *Config) { c.MaxMemoryBytes = 2 << 30 }, false},
	} {
		other := full()
		test.change(other)
		if got := other.Shape() == shape; got != test.fits {
			t.Errorf("%s: the memory fits: %t, want %t", name, got, test.fits)
		}
	}
}
