package qemu

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// needGuest skips a test if the default guest is not built.
func needGuest(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(filepath.Join("..", "..", "..", "bin", "guest", "guest.json")); err != nil {
		t.Skip("SKIP: no default guest: run make guest")
	}
}

// booted returns a machine with the default guest.
func booted(changes ...func(*backend.Machine)) backend.Machine {
	machine := firmware(uid)
	machine.Image, machine.MemoryBytes, machine.DiskBytes = nil, 128<<20, 0
	for _, change := range changes {
		change(&machine)
	}
	return machine
}

// An emulated machine gets no hot-plugged processor, because QEMU might abort: it is pending until
// a restart.
func TestEmulatedMachinesGetNoProcessor(t *testing.T) {
	needGuest(t)
	w := newFixture(t)
	w.options.Accelerator = AccelTCG
	w.open()
	machine := booted()
	run := w.run(machine).Run
	machine.Hash, machine.MilliCPU = "2", 2000
	w.do(w.driver.Reconfigure(t.Context(), machine))
	server := w.server()
	if got := strings.Join(server.Pending, " "); got != "resource.cpu" || server.Run != run {
		t.Errorf("pending are %s; %+v", got, server)
	}
	w.remove()
}

// answers checks that the guest has responded with an address.
func answers(s *backend.Server) bool {
	return s != nil && s.Agent == backend.AgentConnected && len(s.Addresses) > 0
}

func TestGuestBootsAnswersAndPowersOff(t *testing.T) {
	needGuest(t)
	boots(t)
	w := newFixture(t)
	began := time.Now()
	created := w.run(booted(func(m *backend.Machine) {
		m.DiskBytes = 64 << 20
		m.Seed = &backend.Seed{UserData: "#cloud-config\nhostname: from-the-seed\n"}
		m.Ports = []v1alpha1.Port{{Name: "ssh", Port: 22, Protocol: v1alpha1.ProtocolTCP}}
	}))
	server := w.eventually("the guest answers", answers)
	t.Logf("the guest answered after %v", time.Since(began))
	if server.Usage == nil || server.Usage.CPUSeconds == 0 || server.Usage.ResidentBytes == 0 {
		t.Errorf("usage: %+v", server.Usage)
	}
	if len(server.Addresses) != 1 || server.Addresses[0] != created.Addresses[0] {
		t.Errorf("addresses are %v, after the creation %v", server.Addresses, created.Addresses)
	}
	if len(server.Endpoints) != 1 {
		t.Fatalf("endpoints: %v", server.Endpoints)
	}
	conn, err := net.Dial("tcp", server.Endpoints[0].Address)
	if err != nil {
		t.Errorf("the port of the guest: %v", err)
	} else {
		_ = conn.Close()
	}

	// A new manager adopts it with the same state immediately, including its usage.
	run := server.Run
	w.options.AttachTimeout = time.Minute
	w.open()
	if found := w.server(); !answers(found) || found.State != backend.StateRunning {
		t.Errorf("a new manager observes %+v", found)
	}
	found := w.eventually("its use is measured", func(s *backend.Server) bool { return s.Usage != nil })
	if found.Usage.CPU >= 0 || found.Usage.CPUSeconds == 0 {
		t.Errorf("a new manager observes the usage %+v", found.Usage)
	}
	if !answers(found) || found.Run != run {
		t.Errorf("a new manager observes %+v, want the run %s", found, run)
	}

	// The agent responds before the seed is read; the shell's prompt comes last.
	w.eventually("the serial log shows the name from the seed", func(*backend.Server) bool {
		log, err := os.ReadFile(filepath.Join(w.driver.machinesDir(), string(uid), serialLog))
		return err == nil && strings.Contains(string(log), "from-the-seed")
	})

	// It powers off cleanly, without a kill.
	began = time.Now()
	const grace = 2 * time.Minute // then it is killed
	w.do(w.driver.Stop(t.Context(), server.Identity, grace))
	w.eventually("it is off", is(backend.StateStopped))
	took := time.Since(began)
	t.Logf("it powered off within %v", took)
	if took >= grace {
		t.Errorf("it took %v to power off", took)
	}
	w.remove()
}

func TestLongChangesOfARunningMachine(t *testing.T) {
	needGuest(t)
	boots(t) // only then it gives memory back
	w := newFixture(t)
	w.driver.plugs = true // even without KVM: the buffer for translated code is large enough
	machine := booted(func(m *backend.Machine) { m.DiskBytes = 64 << 20 })
	w.run(machine)
	w.shell()
	machine.Hash, machine.DiskBytes, machine.MilliCPU, machine.MemoryBytes = "2", 128<<20, 2000, 112<<20
	w.do(w.driver.Reconfigure(t.Context(), machine))
	w.typed("until grep -q 0-1 /sys/devices/system/cpu/online; do sleep 0.1; done; echo plugged-$((40+2))")
	w.shows("plugged-42")
	if server := w.server(); len(server.Pending) > 0 || server.Hash != "2" {
		t.Errorf("after changes that need no restart: %+v", server)
	}
	machine.Hash, machine.MilliCPU, machine.MemoryBytes = "3", 4000, 512<<20
	machine.Ports = []v1alpha1.Port{{Name: "a", Port: 80}}
	w.do(w.driver.Reconfigure(t.Context(), machine))
	if got := strings.Join(w.server().Pending, " "); got != "resource.cpu resource.memory" {
		t.Errorf("pending are %s", got)
	}
	var balloon struct{ Actual int64 }
	harness.Eventually(t, "the guest has all that is possible without a restart", func() bool {
		conn, err := w.driver.machines[uid].monitor()
		return err == nil && conn.Run(t.Context(), "query-balloon", nil, &balloon) == nil && balloon.Actual == 256<<20
	})
	w.stops()
	if server := w.starts(machine); len(server.Pending) > 0 {
		t.Errorf("after a restart pending are %v", server.Pending)
	}
	w.remove()
}
