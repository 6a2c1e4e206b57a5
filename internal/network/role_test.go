package network

import (
	"context"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// TestMain makes the test program a switch when it is started as one.
func TestMain(m *testing.M) {
	Role()
	os.Exit(m.Run())
}

// startProcess starts a switch as a process of its own, and returns what kills it.
func startProcess(t testing.TB, dir string) (kill func()) {
	t.Helper()
	path, argv := Command(dir)
	command := &exec.Cmd{Path: path, Args: argv, Stderr: os.Stderr}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	kill = func() {
		_ = command.Process.Kill()
		_ = command.Wait() // killed
	}
	t.Cleanup(kill)
	return kill
}

// TestKilled: after kill -9, a new process has the network back, and connections between machines go on.
func TestKilled(t *testing.T) {
	a, b := newGuest(t, "a", "10.77.1.2"), newGuest(t, "b", "10.77.1.3")
	w := newWorld(t, "one", "10.77.1.0/24", a, b)
	w.stop()
	kill := startProcess(t, w.dir)
	a.wait()
	b.wait()
	b.echoes(80)
	conn, err := a.dial("10.77.1.3:80")
	if err != nil {
		t.Fatal(err)
	}
	talk(t, conn, "b")
	for range 3 {
		kill()
		kill = startProcess(t, w.dir)
		talkOn(t, conn)
	}
	dialed, err := w.client.Dial(context.Background(), b.machine.UID, TCP, 80)
	if err != nil {
		t.Fatal(err)
	}
	talk(t, dialed, "b")
}

// TestProcessEnds: SIGTERM is the clean end.
func TestProcessEnds(t *testing.T) {
	w := newWorld(t, "one", "10.77.1.0/24")
	w.stop()
	path, argv := Command(w.dir)
	command := &exec.Cmd{Path: path, Args: argv}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	w.eventually("it answers", func() bool { _, err := w.client.Status(context.Background()); return err == nil })
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err != nil {
		t.Errorf("it has ended with %v", err)
	}
	if output, err := (&exec.Cmd{Path: path, Args: []string{Name}}).CombinedOutput(); err == nil || len(output) == 0 {
		t.Errorf("started by hand: %q, %v", output, err)
	}
}
