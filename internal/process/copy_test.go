package process

import (
	"os"
	"os/exec"
	"testing"
)

// TestCopyOfADirectory: somebody copies a directory whose processes run. The copy has none; it may start its own, and
// nothing that it does reaches those of the original.
func TestCopyOfADirectory(t *testing.T) {
	t.Parallel()
	original := open(t, newDir(t))
	id := newID()
	theirs := start(t, original, sleeper(id))
	dir := newDir(t)
	if out, err := exec.Command("cp", "-a", original.path, dir).CombinedOutput(); err != nil {
		t.Fatalf("copy: %v\n%s", err, out)
	}
	seen, err := Peek(dir)
	if err != nil || len(seen) != 1 || seen[0].State != Lost {
		t.Errorf("the copy has %+v, %v; want one that is lost", seen, err)
	}
	d := open(t, dir)
	if got := find(t, d, id).Status().State; got != Lost {
		t.Errorf("the copy says that the process is %s", got)
	}
	if err := find(t, d, id).Stop(t.Context(), StopOptions{}); err != nil {
		t.Errorf("stop what does not run: %v", err)
	}
	ours := start(t, d, sleeper(id))
	if a, b := ours.Status().PID, theirs.Status().PID; a == b {
		t.Errorf("both are pid %d", a)
	}
	if err := ours.Stop(t.Context(), StopOptions{}); err != nil {
		t.Error(err)
	}
	if got := theirs.Status().State; got != Running {
		t.Errorf("the process of the original is %s", got)
	}
}

// TestMovedDirectory: a directory that is moved keeps its processes.
func TestMovedDirectory(t *testing.T) {
	t.Parallel()
	d := open(t, newDir(t))
	id := newID()
	pid := start(t, d, sleeper(id)).Status().PID
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	moved := newDir(t)
	if err := os.Rename(d.path, moved); err != nil {
		t.Fatal(err)
	}
	if got := find(t, open(t, moved), id).Status(); got.State != Running || got.PID != pid {
		t.Errorf("it is %s with pid %d, and was started with pid %d", got.State, got.PID, pid)
	}
}
