package qemu

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// restores restores the machine of the test, and waits until that has ended.
func (w *fixture) restores(token string, from backend.SnapshotIdentity) *backend.Server {
	w.Helper()
	err := w.driver.RestoreServer(w.Context(), backend.Identity{UID: uid}, backend.Restore{Token: token, Snapshot: from})
	if !errors.Is(err, backend.ErrInProgress) {
		w.do(err)
	}
	return w.eventually("the restore has ended", func(s *backend.Server) bool {
		return s.Task == backend.TaskNone && (s.Restored == token || s.FailedRestore != nil && s.FailedRestore.Token == token)
	})
}

// hasContent checks the disks of the machine of the test, which is off or asleep, and that nothing is left of a restore.
func (w *fixture) hasContent(rootBytes int64, root, data byte) {
	w.Helper()
	dir := filepath.Join(w.driver.machinesDir(), string(uid))
	w.checkFilled(filepath.Join(dir, diskFile), root, rootBytes)
	w.checkFilled(filepath.Join(dir, diskPath("data")), data, 4<<20)
	if rest, err := filepath.Glob(filepath.Join(dir, "*"+restoreSuffix+"*")); err != nil || len(rest) > 0 {
		w.Errorf("left behind: %v, %v", rest, err)
	}
}

// A machine gets the disks of its snapshot back once for each request, whether it was off or asleep. It keeps what the snapshot does
// not have, the sizes of its disks, and its identity. A snapshot that cannot be used changes nothing.
func TestRestoreOfAMachine(t *testing.T) {
	at := hookSteps(t)
	w := newFixture(t)
	machine := w.withData()
	w.run(machine)
	mac := w.driver.machines[uid].def.hardwareAddress()
	w.fillBoth(1, 2)
	first := snapshotOf(1, "first")
	w.takes(first, machine)
	w.fillBoth(3, 4)
	if err := w.driver.RestoreServer(t.Context(), machine.Identity, backend.Restore{Token: "0", Snapshot: first}); err == nil || errors.Is(err, backend.ErrInProgress) {
		t.Errorf("a restore of a running machine: %v", err)
	}
	w.stops()
	machine.DiskBytes = 16 << 20
	machine.Disks = append(machine.Disks, backend.Disk{Name: "new", SizeBytes: 1 << 20})
	w.starts(machine)
	w.fill("new", 9)
	w.sleeps()

	deletion := error(nil)
	at.set("disk copied for a restore", func() { deletion = w.driver.DeleteSnapshot(t.Context(), first) })
	server := w.restores("1", first)
	at.clear()
	if !errors.Is(deletion, backend.ErrInProgress) {
		t.Errorf("a deletion of the snapshot meanwhile: %v", deletion)
	}
	w.open() // it may be used again
	if server.FailedRestore != nil || server.State != backend.StateStopped || server.Ended == nil || server.Ended.Cause != backend.CauseRequested || w.hasMemory() {
		t.Errorf("after the restore: %+v, saved memory: %v", server, w.hasMemory())
	}
	w.hasContent(16<<20, 1, 2)
	w.checkFilled(filepath.Join(w.driver.machinesDir(), string(uid), diskPath("new")), 9, 1<<20)

	w.starts(machine)
	if now := w.driver.machines[uid].def.hardwareAddress(); now != mac {
		t.Errorf("the MAC address is %s, was %s", now, mac)
	}
	w.fillBoth(5, 6)
	w.stops()
	w.restores("1", first) // it was done
	w.hasContent(16<<20, 5, 6)

	s := w.driver.findSnapshot(first.UID)
	refused := func(token, says string) {
		t.Helper()
		if failed := w.restores(token, first).FailedRestore; failed == nil || !strings.Contains(failed.Err.Error(), says) {
			t.Errorf("the restore %s: %+v, want %q", token, failed, says)
		}
		w.hasContent(16<<20, 5, 6)
	}
	s.mu.Lock()
	own := s.def.Machine
	s.def.Machine.UID = derived(7)
	s.mu.Unlock()
	refused("2", "is of another machine")
	s.mu.Lock()
	s.def.Machine = own
	s.mu.Unlock()
	w.do(os.Rename(s.path("data"), s.path("data")+".away"))
	refused("3", "disk-data.qcow2 of the snapshot first is missing")
	w.do(os.Rename(s.path("data")+".away", s.path("data")))
	if server := w.restores("4", first); server.FailedRestore != nil {
		t.Errorf("the restore has failed: %v", server.FailedRestore.Err)
	}
	w.hasContent(16<<20, 1, 2)
	w.remove()
	w.deleteSnapshot(first)
}
