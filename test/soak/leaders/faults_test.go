//go:build soak

package leaders

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// kill kills the leader.
func (w *world) kill(t *testing.T, leader *replica) {
	w.remove(leader)
	began := time.Now()
	leader.Kill(t)
	w.awaitTakeover(t, "killed", leader, began, w.times.duration+w.times.takeover())
}

// suspend suspends the leader past its lease and resumes it: its pending writes must not reach the
// API.
func (w *world) suspend(t *testing.T, leader *replica) {
	w.remove(leader)
	began := time.Now()
	leader.Signal(t, syscall.SIGSTOP)
	w.awaitTakeover(t, "suspended", leader, began, w.times.duration+w.times.takeover())
	leader.Signal(t, syscall.SIGCONT)
	awaitLost(t, leader)
}

// cutOff disconnects the leader from the API for longer than its lease, with failing requests, and
// then reconnects it.
func (w *world) cutOff(t *testing.T, leader *replica) {
	w.separate(t, "cut off", leader, leader.proxy.Cut)
}

// stall does the same silently: requests get no response, and watches receive nothing.
func (w *world) stall(t *testing.T, leader *replica) {
	w.separate(t, "without answers", leader, leader.proxy.Stall)
}

func (w *world) separate(t *testing.T, what string, leader *replica, cut func(bool)) {
	w.remove(leader)
	ended := make(chan time.Time, 1)
	go func() {
		<-leader.Done
		ended <- time.Now()
	}()
	began := time.Now()
	cut(true)
	w.awaitTakeover(t, what, leader, began, w.times.duration+w.times.takeover())
	awaitLost(t, leader) // it does not wait for the API
	cut(false)
	took := (<-ended).Sub(began)
	t.Logf("%s: %s has ended %.2f s later; the limit is its lease, %v", what, leader.Name, took.Seconds(), w.times.duration)
	if took > w.times.duration {
		t.Errorf("%s: %s kept running for %v, longer than its lease", what, leader.Name, took)
	}
}

// awaitLost waits until a leader that has lost its lease has ended, with the message in
// docs/runbooks.md.
func awaitLost(t *testing.T, leader *replica) {
	t.Helper()
	leader.AwaitDone(t)
	if !strings.Contains(leader.Log(), "error: run the manager: leader election lost") {
		t.Errorf("%s does not report that it has lost its lease:\n%s", leader.Name, leader.Tail())
	}
}
