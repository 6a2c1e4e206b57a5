package life

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

const sleeper = `apiVersion: cloudnative.tw/v1alpha1
kind: VirtualMachine
metadata: {name: sleeper}
spec:
  resource: {cpu: 1, memory: 128Mi}
  onHostShutdown: Sleep
`

// TestLongMachineSleepsWhileKeelsonIsDown stops Keelson with a machine that sleeps meanwhile, and then without room for its memory.
func TestLongMachineSleepsWhileKeelsonIsDown(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skip(err)
	}
	m := newMachine(t)
	m.OK(t, "keelson", "up", "--detach", "--nodes=0")
	user := m.withCluster()
	user.Stdin = sleeper
	user.OK(t, "kubectl", "create", "-f", "-")
	user.Stdin = ""
	ready := []string{"kubectl", "wait", "--for=condition=Ready", "vm/sleeper", "--timeout", transcript.WaitTimeout.String()}
	user.OK(t, ready...)
	run := []string{"kubectl", "get", "vm/sleeper", "-o", "jsonpath={.status.server.run} {.spec.action}"}
	before := user.OK(t, run...)
	if end := m.Run(t, "keelson", "down"); end.Code != 0 || strings.Contains(end.Stderr, "Warning") {
		t.Errorf("keelson down: exit code %d, %s", end.Code, end.Stderr)
	}
	m.nothingIsLeft(t)

	m.OK(t, "keelson", "up", "--detach", "--nodes=0", "--config", m.config(t, "virtualMachines: {stateMax: 1Mi}"))
	user.Until(t, "another QEMU runs it", func(now string) bool {
		return now != before && strings.HasSuffix(now, " active") && !strings.HasPrefix(now, " ")
	}, run...)
	user.OK(t, ready...)
	if events := user.OK(t, "kubectl", "get", "events", "-o", "jsonpath={.items[*].reason}"); strings.Contains(events, "MemoryLost") {
		t.Errorf("it was not woken: its events are %s", events)
	}
	end := m.Run(t, "keelson", "down")
	transcript.Contains(t, end.Stderr, "Warning: VirtualMachine default/sleeper was shut down instead of put to sleep, and its memory is lost: the host was shut down: ", "virtualMachines.stateMax")
	transcript.Contains(t, end.Stdout, "Stopped in ")
	m.OK(t, "keelson", "down", "--delete-data")
}
