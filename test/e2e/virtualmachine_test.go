package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/signals"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

const fakeMachine = "apiVersion: cloudnative.tw/v1alpha1\nkind: VirtualMachine\nmetadata: {name: fake-vm}\n" +
	"spec: {driver: fake, resource: {cpu: 2, memory: 1Gi}, ports: [{name: ssh, port: 22}]}\n"

// The controller's behaviour, on the driver that only simulates machines.
func TestSmokeVirtualMachineInMemory(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.Stdin = fakeMachine
	s.kubectl(t, "apply", "-f", "-")
	s.Stdin = ""
	s.wait(t, "condition=Ready", "vm/fake-vm")
	columns := strings.Fields(s.kubectl(t, "get", "vm", "fake-vm", "-o", "wide"))
	want := "NAME STATUS READY CPU(%) MEMORY(%) AGE DRIVER HOST ADDRESS RESTARTS REASON fake-vm Running True 1 10"
	if got := strings.Join(columns, " "); !strings.HasPrefix(got, want+" ") || !strings.HasSuffix(got, " fake fake 10.0.2.15 0 GuestReady") {
		t.Errorf("kubectl get vm shows %q", got)
	}

	// Ports change without a restart.
	s.kubectl(t, "patch", "vm/fake-vm", "--type", "merge", "-p", `{"spec":{"ports":[{"name":"http","port":80}]}}`)
	s.untilField(t, "vm/fake-vm", `{.status.observedGeneration} {.status.conditions[?(@.type=="RestartRequired")].status}`, "2 False")

	s.kubectl(t, "patch", "vm/fake-vm", "--type", "merge", "-p", `{"spec":{"action":"paused"}}`)
	s.untilField(t, "vm/fake-vm", "{.status.printableStatus} {.status.phase} {.status.server.state}", "Paused Active Paused")
	s.kubectl(t, "patch", "vm/fake-vm", "--type", "merge", "-p", `{"spec":{"action":"asleep"}}`)
	s.untilField(t, "vm/fake-vm", "{.status.printableStatus} {.status.phase} {.status.server.state}", "Asleep Active Asleep")
	s.kubectl(t, "patch", "vm/fake-vm", "--type", "merge", "-p", `{"spec":{"action":"stopped"}}`)
	s.untilField(t, "vm/fake-vm", "{.status.printableStatus} {.status.phase} {.status.server.state}", "Stopped Active Stopped")
	s.kubectl(t, "patch", "vm/fake-vm", "--type", "merge", "-p", `{"spec":{"action":"active"}}`)
	s.wait(t, "condition=Ready", "vm/fake-vm")
	s.kubectl(t, "delete", "vm/fake-vm")

	// The name can be reused.
	s.Stdin = fakeMachine
	s.kubectl(t, "apply", "-f", "-")
	s.wait(t, "condition=Ready", "vm/fake-vm")
}

// A machine waits for the Secret with its user data.
func TestSmokeVirtualMachineOfASecret(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.Stdin = "apiVersion: cloudnative.tw/v1alpha1\nkind: VirtualMachine\nmetadata: {name: careful}\n" +
		"spec: {driver: fake, cloudInit: {userDataFrom: {name: users, key: data}}}\n"
	s.kubectl(t, "apply", "-f", "-")
	s.Stdin = ""
	s.wait(t, "condition=Ready=False", "vm/careful")
	s.until(t, "the condition names the Secret", func(message string) bool { return strings.Contains(message, `"users"`) },
		"get", "vm/careful", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].message}`)
	s.kubectl(t, "create", "secret", "generic", "users", "--from-literal=data=#cloud-config")
	s.wait(t, "condition=Ready", "vm/careful")
}

const testVM = "vm/test-vm"

// The machine of the example, on QEMU.
func TestLongVirtualMachineOnQEMU(t *testing.T) {
	needQEMU(t)
	t.Parallel()
	s := newSession(t)

	s.kubectl(t, "apply", "-f", manifest("virtualmachine.yaml"))
	s.untilField(t, testVM, "{.status.phase}", "Active")
	s.wait(t, "condition=Ready", testVM)
	columns := strings.Fields(s.kubectl(t, "get", testVM))
	if got := strings.Join(columns[:6], " "); got != "NAME STATUS READY CPU(%) MEMORY(%) AGE" || len(columns) != 12 || columns[7] != "Running" {
		t.Errorf("kubectl get vm shows %q", columns)
	}
	s.until(t, "it has an address", func(address string) bool { return strings.HasPrefix(address, "10.") }, "get", testVM, "-o", "jsonpath={.status.server.addresses[0]}")
	uid := s.field(t, testVM, "{.metadata.uid}")
	process := qemuOf(t, uid)
	transcript.Contains(t, process.line, "cpus=2,", "size=3906250k")
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", process.pid))
	if err != nil {
		t.Fatal(err)
	}
	transcript.Contains(t, string(status), "Seccomp:\t2\n") // the kernel restricts its system calls, proc_pid_status(5)

	// After a kill it is restarted.
	signals.Send(t, process.pid, syscall.SIGKILL)
	s.untilField(t, testVM, "{.status.phase} {.status.restarts} {.status.server.state}", "Active 1 Running")
	s.wait(t, "condition=Ready", testVM)

	// Asleep it has no process, and its memory is in a file. It wakes where it was.
	run := s.field(t, testVM, "{.status.server.run}")
	memory := filepath.Join(qemuOf(t, uid).place, "memory.zst")
	s.kubectl(t, "patch", testVM, "--type", "merge", "-p", `{"spec":{"action":"asleep"}}`)
	s.untilField(t, testVM, "{.status.printableStatus} {.status.phase} {.status.server.state}", "Asleep Active Asleep")
	if left := processesOf(uid); len(left) > 0 {
		t.Errorf("processes of a machine that is asleep: %v", left)
	}
	if info, err := os.Stat(memory); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of its memory: %v, %v", info, err)
	}
	s.kubectl(t, "patch", testVM, "--type", "merge", "-p", `{"spec":{"action":"active"}}`)
	s.wait(t, "condition=Ready", testVM)
	if again := s.field(t, testVM, "{.status.server.run} {.status.restarts}"); again == run+" 1" || !strings.HasSuffix(again, " 1") {
		t.Errorf("run and restarts after waking are %s, before it was run %s", again, run)
	}
	transcript.Contains(t, qemuOf(t, uid).line, "-incoming")
	if _, err := os.Stat(memory); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its memory was used and is still there: %v", err)
	}

	// A stop powers it off cleanly.
	s.kubectl(t, "patch", testVM, "--type", "merge", "-p", `{"spec":{"action":"stopped"}}`)
	s.untilField(t, testVM, "{.status.phase} {.status.server.state}", "Active Stopped")
	if left := processesOf(uid); len(left) > 0 {
		t.Errorf("processes are still running: %v", left)
	}
	s.kubectl(t, "patch", testVM, "--type", "merge", "-p", `{"spec":{"action":"active"}}`)
	s.wait(t, "condition=Ready", testVM)
	if got := s.field(t, testVM, "{.status.restarts}"); got != "1" {
		t.Errorf("%s restarts after a requested stop and start, want 1", got)
	}

	// After the deletion nothing is left of it.
	place := qemuOf(t, uid).place
	s.kubectl(t, "delete", testVM)
	if left := processesOf(uid); len(left) > 0 {
		t.Errorf("leaked processes: %v", left)
	}
	if _, err := os.Stat(place); filepath.Base(place) != uid || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("leftover folder %s: %v", place, err)
	}
	s.Stdin = fakeMachine // newSession needs an object at the end
	s.kubectl(t, "apply", "-f", "-")
}

// needQEMU skips a test on a machine without QEMU or the default guest. CI has both.
func needQEMU(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skipf("SKIP: %v", err)
	}
	if _, err := env.Binary("guest/guest.json"); err != nil {
		t.Skip("SKIP: no default guest: run make guest")
	}
	if stateDir == "" {
		t.Skip("SKIP: the machines are on the manager's host, which is not this one")
	}
}

// qemu is the process of a machine.
type qemu struct {
	pid   int
	line  string
	place string
}

// qemuOf returns the only process of a machine.
func qemuOf(t *testing.T, uid string) qemu {
	t.Helper()
	all := processesOf(uid)
	if len(all) != 1 {
		t.Fatalf("processes of machine %s are %v, want one", uid, all)
	}
	return all[0]
}

// processesOf returns the QEMUs with that UID.
func processesOf(uid string) []qemu {
	var found []qemu
	processes, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
	for _, process := range processes {
		words, _ := os.ReadFile(filepath.Join(process, "cmdline")) // empty if it has ended
		if !strings.Contains(string(words), "\x00-uuid\x00"+uid+"\x00") {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(process)) // the pattern matches digits only
		found = append(found, qemu{pid, strings.ReplaceAll(string(words), "\x00", " "), transcript.Place(process)})
	}
	return found
}
