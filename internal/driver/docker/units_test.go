package docker

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

func TestNewContainer(t *testing.T) {
	machine := small(uid)
	machine.Name = "web.shop"
	got := newContainer(&machine, "image:1")
	labels := map[string]string{
		"cloudnative.tw/virtualmachine-uid": string(uid), "cloudnative.tw/virtualmachine-namespace": "default",
		"cloudnative.tw/virtualmachine-name": "web.shop", "cloudnative.tw/cluster-uid": "cluster",
	}
	want := newContainer(&machine, "image:1")
	want.Name = "keelson-" + string(uid)
	want.Config = &container.Config{Image: "image:1", Hostname: "web", Tty: true, OpenStdin: true, StopSignal: "SIGHUP", Labels: labels}
	want.HostConfig = &container.HostConfig{
		Resources:     container.Resources{NanoCPUs: 500_000_000, Memory: 64 << 20, MemorySwap: 64 << 20, PidsLimit: ptr.To[int64](4096)},
		NetworkMode:   "keelson-cluster-default",
		SecurityOpt:   []string{"no-new-privileges:true"},
		CapDrop:       []string{"NET_RAW"},
		RestartPolicy: container.RestartPolicy{Name: "no"},
		LogConfig:     container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "10m", "max-file": "3"}},
		Init:          ptr.To(true),
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("container (-want +got):\n%s", diff)
	}
	if got := identityOf(got.Config.Labels); got != machine.Identity {
		t.Errorf("its labels identify %+v", got)
	}
	machine.Image = &v1alpha1.Image{Container: "image:1"}
	if options := newContainer(&machine, "image:1"); options.HostConfig.Init != nil || options.Config.StopSignal != "" {
		t.Error("a user's image gets an init or another signal")
	}
}

func TestCheckImage(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, test := range []struct{ name, image, want string }{
		{"a name", "debian", ""},
		{"name with a registry", "registry.example:5000/a/b:1", ""},
		{"name with a digest", "debian@sha256:" + id, ""},
		{"tag that could be an ID", "debian:cafe", ""},
		{"name that could be an ID, with a tag", "cafe:latest", ""},
		{"retained disk of the namespace", "keelson-retained/default/vm:" + string(uid), ""},
		{"retained disk of another namespace", "keelson-retained/other/vm:" + string(uid), "another namespace"},
		{"retained disk by its full name", "docker.io/keelson-retained/other/vm:" + string(uid), "another namespace"},
		{"retained disk by an alias of its full name", "index.docker.io/keelson-retained/other/vm", "another namespace"},
		{"retained disk of a namespace with a longer name", "keelson-retained/default-2/vm:x", "another namespace"},
		{"retained disk by its digest", "keelson-retained/other/vm@sha256:" + id, "another namespace"},
		{"ID", id, "not its ID"},
		{"ID with its algorithm", "sha256:" + id, "not its ID"},
		{"prefix of an ID", "0123", "not its ID"},
		{"prefix of an ID with its algorithm", "sha256:0123", "not its ID"},
		{"invalid name", "a b", "is not an image name"},
	} {
		t.Run(test.name, func(t *testing.T) {
			machine := small(uid)
			machine.Image = &v1alpha1.Image{Container: test.image}
			err := checkImage(&machine)
			if test.want == "" && err != nil || test.want != "" && (!errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestHostName(t *testing.T) {
	for _, test := range []struct{ name, vm, want string }{
		{"the machine's name", "web-1", "web-1"},
		{"name with dots", "web.shop.example", "web"},
		{"maximum length", strings.Repeat("a", 63), strings.Repeat("a", 63)},
		{"too long", strings.Repeat("a", 64), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := hostName(test.vm); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	d := &Driver{processors: 2}
	for _, test := range []struct {
		name   string
		change func(*backend.Machine)
		want   string
	}{
		{"valid", func(*backend.Machine) {}, ""},
		{"a container image", func(m *backend.Machine) { m.Image = &v1alpha1.Image{Container: "debian:13"} }, ""},
		{"a disk image", func(m *backend.Machine) { m.Image = &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: "/disk"}} }, "spec.image.container"},
		{"a kernel", func(m *backend.Machine) { m.Image = &v1alpha1.Image{Kernel: "/vmlinuz"} }, "spec.image.container"},
		{"too little CPU", func(m *backend.Machine) { m.MilliCPU = 9 }, "at least 10m"},
		{"all processors", func(m *backend.Machine) { m.MilliCPU = 2000 }, ""},
		{"more processors than the host has", func(m *backend.Machine) { m.MilliCPU = 2001 }, "has 2 processors"},
		{"rules of its network", func(m *backend.Machine) { m.Network = &v1alpha1.Network{Mode: v1alpha1.NetworkIsolated} }, "spec.network"},
		{"several fields, of which it names the same each time", func(m *backend.Machine) {
			m.Display, m.CPUModel, m.Firmware, m.CDROM, m.Disks = v1alpha1.DisplayVGA, "host", v1alpha1.FirmwareUEFI, &v1alpha1.Image{}, []backend.Disk{{Name: "data"}}
		}, "spec.disks"},
		{"a template of its Pod", func(m *backend.Machine) { m.Pod.Template = &v1alpha1.PodTemplate{} }, "spec.pod"},
		{"sleep when the host is shut down", func(m *backend.Machine) { m.SleepsAtShutdown = true }, "spec.onHostShutdown"},
		{"sleep on a schedule", func(m *backend.Machine) { m.SleepsOnSchedule = true }, "spec.powerSchedule"},
		{"sleep when it is idle", func(m *backend.Machine) { m.SleepsWhenIdle = true }, "spec.idle"},
		{"snapshots on a schedule", func(m *backend.Machine) { m.TakesSnapshots = true }, "spec.snapshots"},
		{"a restore", func(m *backend.Machine) { m.IsRestored = true }, "spec.restore"},
		{"an eviction policy", func(m *backend.Machine) { m.Pod.EvictionPolicy = v1alpha1.EvictionStop }, "spec.pod"},
		{"invalid UID", func(m *backend.Machine) { m.UID = "../x" }, "is not a UID"},
	} {
		t.Run(test.name, func(t *testing.T) {
			machine := small(uid)
			test.change(&machine)
			err := d.validate(&machine)
			if test.want == "" && err != nil || test.want != "" && (!errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// Timestamps in the engine's format.
const (
	startTime = "2026-03-04T12:00:00.123456789Z"
	endTime   = "2026-03-04T12:00:05Z"
	never     = "0001-01-01T00:00:00Z"
)

func TestEndOf(t *testing.T) {
	started, ended := timeOf(startTime), timeOf(endTime)
	state := func(change func(*container.State)) *container.State {
		s := &container.State{Status: container.StateExited, StartedAt: startTime, FinishedAt: endTime}
		change(s)
		return s
	}
	run := runOf(state(func(*container.State) {}))
	of := func(cause backend.Cause, message string) *backend.Ended {
		return &backend.Ended{Run: run, Cause: cause, Message: message, StartedAt: started, At: ended}
	}
	failed := &backend.Ended{Run: "attempt-1", Cause: backend.CauseStartFailed, Message: "no such file", At: ended}
	created := &container.State{Status: container.StateCreated, StartedAt: never, FinishedAt: never}
	for _, test := range []struct {
		name   string
		state  *container.State
		record record
		want   *backend.Ended
	}{
		{"it never ran", created, record{}, nil},
		{"stopped before it ever ran", created, record{Stop: &stopRequest{}}, &backend.Ended{Cause: backend.CauseRequested}},
		{"its program exited with 0", state(func(*container.State) {}), record{}, of(backend.CauseGuestShutdown, "")},
		{"its program failed", state(func(s *container.State) { s.ExitCode = 3 }), record{}, of(backend.CauseError, "its main process exited with status 3")},
		{"it was killed", state(func(s *container.State) { s.ExitCode = 137 }), record{}, of(backend.CauseHost, "its main process was killed by SIGKILL")},
		{"a status above the signals", state(func(s *container.State) { s.ExitCode = 255 }), record{}, of(backend.CauseError, "its main process exited with status 255")},
		{"out of memory", state(func(s *container.State) { s.ExitCode, s.OOMKilled = 137, true }), record{},
			of(backend.CauseError, "it exceeded the memory limit in spec.resource.memory")},
		{"the engine failed", state(func(s *container.State) { s.ExitCode, s.Error = 128, "broken" }), record{}, of(backend.CauseError, "broken")},
		{"as requested", state(func(s *container.State) { s.ExitCode = 137 }), record{Stop: &stopRequest{Run: run}}, of(backend.CauseRequested, "")},
		{"an earlier run was requested to stop", state(func(s *container.State) { s.ExitCode = 137 }), record{Stop: &stopRequest{Run: "before"}},
			of(backend.CauseHost, "its main process was killed by SIGKILL")},
		{"the next start failed", state(func(*container.State) {}), record{Failed: failed, AfterRun: run}, failed},
		{"started by hand since", state(func(*container.State) {}), record{Failed: failed, AfterRun: "before"}, of(backend.CauseGuestShutdown, "")},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, endOf(test.state, &test.record)); diff != "" {
				t.Errorf("end (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDescribe(t *testing.T) {
	machine := small(uid)
	machine.Ports = []v1alpha1.Port{{Name: "ssh", Port: 22, Protocol: v1alpha1.ProtocolTCP}}
	ctr := func(status container.ContainerState) *container.InspectResponse {
		options := newContainer(&machine, "image")
		return &container.InspectResponse{
			Name: "/" + options.Name, Config: options.Config, HostConfig: options.HostConfig,
			State: &container.State{Status: status, StartedAt: startTime, FinishedAt: never},
			NetworkSettings: &container.NetworkSettings{Networks: map[string]*network.EndpointSettings{
				"bridge": {IPAddress: netip.MustParseAddr("172.17.0.2")}, "none": {},
			}},
		}
	}
	on := backend.Server{
		Identity: machine.Identity, ID: "keelson-" + string(uid), State: backend.StateRunning, Run: runOf(ctr("").State),
		StartedAt: timeOf(startTime), Hash: "1", Addresses: []string{"172.17.0.2"},
		Endpoints: []v1alpha1.Endpoint{{Name: "ssh", Protocol: v1alpha1.ProtocolTCP, Address: "172.17.0.2:22"}},
	}
	with := func(change func(*backend.Server)) backend.Server {
		s := on
		change(&s)
		return s
	}
	off := with(func(s *backend.Server) {
		s.State, s.StartedAt, s.Addresses, s.Endpoints = backend.StateStopped, time.Time{}, nil, nil
	})
	larger := machine
	larger.MilliCPU, larger.MemoryBytes = 2000, 1<<30
	for _, test := range []struct {
		name   string
		ctr    *container.InspectResponse
		record record
		want   backend.Server
	}{
		{"running", ctr(container.StateRunning), record{Machine: machine}, on},
		{"paused", ctr(container.StatePaused), record{Machine: machine}, with(func(s *backend.Server) { s.State = backend.StatePaused })},
		{"no record", ctr(container.StateRunning), record{}, with(func(s *backend.Server) { s.Hash, s.Endpoints = "", nil })},
		{"changes wait", ctr(container.StateRunning), record{Machine: larger, SeedSum: "1"}, with(func(s *backend.Server) {
			s.Pending = []string{"resource.cpu", "resource.memory", "cloudInit"}
		})},
		{"off", ctr(container.StateExited), record{Machine: machine}, func() backend.Server {
			s := off
			s.Ended = &backend.Ended{Run: s.Run, Cause: backend.CauseGuestShutdown, StartedAt: timeOf(startTime)}
			return s
		}()},
		{"the engine could not remove it", ctr(container.StateDead), record{Machine: machine}, func() backend.Server {
			s := off
			s.State, s.Message = backend.StateUnknown, "the container "+s.ID+" is dead; try docker rm --force "+s.ID
			return s
		}()},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, describe(test.ctr, &test.record)); diff != "" {
				t.Errorf("server (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUsage(t *testing.T) {
	start := timeOf(startTime)
	host := &container.HostConfig{Resources: container.Resources{NanoCPUs: 2e9, Memory: 100 << 20}}
	stats := func(after time.Duration, cpu time.Duration, memory, files uint64) *container.StatsResponse {
		s := &container.StatsResponse{Read: start.Add(after)}
		s.CPUStats.CPUUsage.TotalUsage = uint64(cpu)
		s.MemoryStats.Usage = memory
		s.MemoryStats.Stats = map[string]uint64{"inactive_file": files}
		return s
	}
	var u usage
	for _, test := range []struct {
		name   string
		run    string
		stats  *container.StatsResponse
		notify bool
		want   backend.Usage
	}{
		{"first measurement, since the start", "1", stats(10*time.Second, 10*time.Second, 60<<20, 10<<20), true,
			backend.Usage{CPU: 50, Memory: 50, CPUSeconds: 10, ResidentBytes: 60 << 20, GuestBytes: 50 << 20}},
		{"hardly more", "1", stats(20*time.Second, 20500*time.Millisecond, 62<<20, 10<<20), false,
			backend.Usage{CPU: 52.5, Memory: 52, CPUSeconds: 20.5, ResidentBytes: 62 << 20, GuestBytes: 52 << 20}},
		{"much less", "1", stats(30*time.Second, 20500*time.Millisecond, 62<<20, 10<<20), true,
			backend.Usage{Memory: 52, CPUSeconds: 20.5, ResidentBytes: 62 << 20, GuestBytes: 52 << 20}},
		{"another run", "2", stats(5*time.Second, time.Second, 10<<20, 20<<20), true,
			backend.Usage{CPU: 10, Memory: 10, CPUSeconds: 1, ResidentBytes: 10 << 20, GuestBytes: 10 << 20}},
	} {
		if got := u.add(test.run, start, test.stats, host); got != test.notify {
			t.Errorf("%s: reported %v", test.name, got)
		}
		test.want.At = test.stats.Read
		if diff := cmp.Diff(test.want, *u.last); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestNoEngine(t *testing.T) {
	_, err := Open(Options{StateDir: t.TempDir(), Host: "unix:///nowhere/docker.sock"})
	if !errors.Is(err, backend.ErrMissing) {
		t.Fatalf("Open without an engine: %v", err)
	}
	for _, part := range []string{"unix:///nowhere/docker.sock", "apt-get install docker.io", "virtualMachines.dockerHost"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the message does not contain %q: %v", part, err)
		}
	}
	if err := StopAll(t.Context(), t.TempDir(), 0); err != nil {
		t.Errorf("StopAll without machines needs an engine: %v", err)
	}
}

func TestUnreadableRecord(t *testing.T) {
	d := &Driver{options: Options{StateDir: t.TempDir()}, machines: map[types.UID]*machine{}}
	m := &machine{d: d, id: small(uid).Identity}
	if err := atomicfile.Write(m.recordPath(), []byte("{"), atomicfile.Volatile); err != nil {
		t.Fatal(err)
	}
	m.read()
	if diff := cmp.Diff(record{}, m.record); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}
