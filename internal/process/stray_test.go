package process

import (
	"os"
	"path/filepath"
	"testing"
)

// Somebody removed the directory with the records by hand: the processes are found by what is in their environment.
func TestEndMarkedFindsProcessesWithoutRecords(t *testing.T) {
	dir := newDir(t)
	d := open(t, dir)
	entry := "KEELSON_TEST_MARK=" + newID()
	marked := []*Process{}
	for range 2 {
		spec := script(newID(), `echo ready; sleep 600 & wait`) // with a child that has the mark, too
		spec.Env = append(os.Environ(), entry)
		marked = append(marked, start(t, d, spec))
	}
	other := sleeper(newID())
	other.Env = append(os.Environ(), entry+"0")
	unmarked := start(t, d, other)
	for _, p := range marked {
		if err := os.RemoveAll(filepath.Join(dir, p.ID())); err != nil {
			t.Fatal(err)
		}
	}

	eventually(t, "both have a child", func() bool { return len(markedProcesses(entry)) == 4 })
	if ended, err := EndMarked(t.Context(), entry); err != nil || ended != 4 {
		t.Errorf("EndMarked ended %d processes, %v; want 4", ended, err)
	}
	for _, p := range marked {
		waitDone(t, p)
	}
	if unmarked.ended() {
		t.Error("a process with another mark was ended")
	}
	if ended, err := EndMarked(t.Context(), entry); err != nil || ended != 0 {
		t.Errorf("EndMarked ended %d more processes, %v", ended, err)
	}
}

func TestEndMarkedRefusesWhatCouldMeanOthers(t *testing.T) {
	for _, entry := range []string{"", "HOME", "HOME=", "=12345678", "A=b"} {
		if _, err := EndMarked(t.Context(), entry); err == nil {
			t.Errorf("EndMarked took %q", entry)
		}
	}
}
