//go:build soak

package node

import (
	"bytes"
	"syscall"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/internal/testing/signals"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

const lostTaint = "node.kubernetes.io/out-of-service"

// faults are what the soak test does to a node, a machine, the manager or the API.
var faults = []struct {
	name    string
	happens func(s *soak, index int, m *soaked)
}{
	{"nodes killed", func(s *soak, index int, _ *soaked) {
		s.u.keelsonNode(s.T, "kill", node.Name(index))
		s.pause(20 * time.Second)
		s.u.keelsonNode(s.T, "start", node.Name(index))
	}},
	{"nodes stopped", func(s *soak, index int, _ *soaked) {
		s.u.keelsonNode(s.T, "stop", node.Name(index))
		s.pause(20 * time.Second)
		s.u.keelsonNode(s.T, "start", node.Name(index))
	}},
	{"nodes lost", func(s *soak, index int, _ *soaked) {
		s.u.keelsonNode(s.T, "kill", node.Name(index))
		s.u.kubectl(s.T, "taint", "node", node.Name(index), lostTaint+"=lost:NoExecute")
		s.pause(time.Minute)
		s.u.keelsonNode(s.T, "start", node.Name(index))
		s.u.kubectl(s.T, "taint", "node", node.Name(index), lostTaint+"-")
	}},
	{"nodes drained", func(s *soak, index int, _ *soaked) {
		s.u.OK(s.T, "kubectl", "drain", node.Name(index), "--pod-selector", ofMachines, "--delete-emptydir-data", "--timeout", transcript.WaitTimeout.String())
		s.u.kubectl(s.T, "uncordon", node.Name(index))
	}},
	{"nodes frozen", func(s *soak, index int, _ *soaked) {
		frozen := stopAll(s.T, func() map[int]string { return withDescendants(s.T, s.u.inner(s.T, index)) })
		s.pause(time.Minute)
		for pid := range frozen {
			signals.Try(s.T, pid, syscall.SIGCONT)
		}
	}},
	{"nodes partitioned", func(s *soak, index int, _ *soaked) {
		s.u.partition(s.T, index, "--insert")
		s.pause(time.Minute)
		s.u.partition(s.T, index, "--delete")
	}},
	{"managers killed", func(s *soak, _ int, _ *soaked) {
		s.u.killManager(s.T)
		s.up()
	}},
	{"APIs away", func(s *soak, _ int, _ *soaked) {
		s.u.killManager(s.T)
		for _, component := range s.u.status(s.T).Components {
			if component.Name == "kube-apiserver" {
				signals.Send(s.T, component.PID, syscall.SIGKILL)
			}
		}
		s.pause(s.outage)
		s.up()
	}},
	{"QEMUs killed", func(s *soak, _ int, m *soaked) { m.signal(s.T, syscall.SIGKILL) }},
	{"QEMUs frozen", func(s *soak, _ int, m *soaked) {
		m.signal(s.T, syscall.SIGSTOP)
		s.pause(20 * time.Second)
		m.signal(s.T, syscall.SIGCONT)
	}},
	{"Pods deleted", func(s *soak, _ int, m *soaked) {
		s.u.kubectl(s.T, "delete", "pod", "--selector", ofMachines+"="+m.uid, "--wait=false")
	}},
	{"Pods deleted by force", func(s *soak, _ int, m *soaked) {
		s.u.kubectl(s.T, "delete", "pod", "--selector", ofMachines+"="+m.uid, "--force", "--grace-period=0", "--wait=false")
	}},
	{"Pods deleted while QEMU is frozen", func(s *soak, _ int, m *soaked) {
		m.signal(s.T, syscall.SIGSTOP)
		s.u.kubectl(s.T, "delete", "pod", "--selector", ofMachines+"="+m.uid, "--wait=false")
	}},
}

// signal sends a signal to the QEMU of the machine, if there is one.
func (m *soaked) signal(t *testing.T, signal syscall.Signal) {
	t.Helper()
	eachQEMU(func(pid int, arguments []byte) {
		if bytes.Contains(arguments, []byte(m.uid)) {
			signals.Try(t, pid, signal)
		}
	})
}
