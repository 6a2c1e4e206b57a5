//go:build soak

package leaders

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// kill ends the leader without a word.
func (w *world) kill(t *testing.T, leader *replica) {
	w.remove(leader)
	began := time.Now()
	leader.Kill(t)
	w.awaitTakeover(t, "killed", leader, began, w.times.duration+w.times.takeover())
}

// suspend stops the leader past its lease and wakes it: what it has in hand must not reach the API any more.
func (w *world) suspend(t *testing.T, leader *replica) {
	w.remove(leader)
	began := time.Now()
	leader.Signal(t, syscall.SIGSTOP)
	w.awaitTakeover(t, "suspended", leader, began, w.times.duration+w.times.takeover())
	leader.Signal(t, syscall.SIGCONT)
	awaitLost(t, leader)
}

// cutOff keeps the leader from the API for longer than its lease: its requests are refused. Then it is let back.
func (w *world) cutOff(t *testing.T, leader *replica) {
	w.separate(t, "cut off", leader, leader.proxy.Cut)
}

// stall does the same, but nobody says no: requests have no answer, and watches tell nothing more.
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
	t.Logf("%s: %s has ended %.2f s later; allowed is its lease, %v", what, leader.Name, took.Seconds(), w.times.duration)
	if took > w.times.duration {
		t.Errorf("%s: %s went on for %v, which is longer than its lease", what, leader.Name, took)
	}
}

// awaitLost waits until a leader that has lost its lease has ended, and says so as docs/runbooks.md has it.
func awaitLost(t *testing.T, leader *replica) {
	t.Helper()
	leader.AwaitDone(t)
	if !strings.Contains(leader.Log(), "error: run the manager: leader election lost") {
		t.Errorf("%s does not say that it has lost its lease:\n%s", leader.Name, leader.Tail())
	}
}
