package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/internal/testing/signals"
)

func TestSecondManagerIsRefused(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	h := startHelper(t, "hold", helperArgs{Dir: dir}, nil)
	h.mustResult(t)
	_, err := Open(dir)
	var locked *LockedError
	if !errors.As(err, &locked) || !errors.Is(err, ErrLocked) {
		t.Fatalf("open: %v", err)
	}
	if diff := cmp.Diff(&LockedError{Dir: dir, PID: h.cmd.Process.Pid}, locked); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
	if text := err.Error(); !strings.Contains(text, dir) || !strings.Contains(text, strconv.Itoa(locked.PID)) {
		t.Errorf("error says %q", text)
	}
	h.kill()
	d := open(t, dir)
	if _, err := Open(dir); !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Errorf("second open in one process: %v", err)
	}
	reopen(t, d)
}

func TestStaleLockFileIsNoObstacle(t *testing.T) {
	for name, content := range map[string]string{
		"a dead holder": "4194304\n", "a pid of somebody else": "1\n", "nothing": "", "no number": "what?\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := newDir(t)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, lockFile)
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			d := open(t, dir)
			if got := lockHolder(d.lock); got != os.Getpid() {
				t.Errorf("holder %d", got)
			}
		})
	}
}

// TestLockHeldForTheDead: a killed manager may leave the lock to a child that has not called exec yet. Open waits for
// that, but not for long.
func TestLockHeldForTheDead(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer closeQuietly(f)
	if _, err := f.WriteString("4194304\n"); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	var locked *LockedError
	if _, err := acquireLock(dir, shortTimeout); !errors.As(err, &locked) || locked.PID != 4194304 {
		t.Errorf("lock: %v", err)
	}
	unlocked := make(chan error)
	fd := int(f.Fd())
	time.AfterFunc(20*time.Millisecond, func() { unlocked <- syscall.Flock(fd, syscall.LOCK_UN) })
	open(t, dir)
	if err := <-unlocked; err != nil {
		t.Error(err)
	}
}

// TestLockOfADyingManager: a manager that was killed has its lock until the kernel takes it away. Open waits for that,
// but not for long.
func TestLockOfADyingManager(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	h := startHelper(t, "hold", helperArgs{Dir: dir}, nil)
	h.mustResult(t)
	pid := h.cmd.Process.Pid
	if IsEnding(pid) {
		t.Error("a manager that lives counts as ending")
	}
	release := signals.KillSlowly(t, pid)
	if !pidAlive(pid) || !IsEnding(pid) {
		t.Errorf("a dying manager: alive %t, ending %t; want both", pidAlive(pid), IsEnding(pid))
	}
	if holder, err := Holder(dir); err != nil || holder != pid {
		t.Errorf("holder %d, error %v; want %d", holder, err, pid)
	}
	var locked *LockedError
	if _, err := acquireLock(dir, shortTimeout); !errors.As(err, &locked) || locked.PID != pid {
		t.Errorf("lock: %v", err)
	}
	opened := make(chan error, 1)
	go func() {
		d, err := Open(dir)
		if err == nil {
			err = d.Close()
		}
		opened <- err
	}()
	release()
	if err := <-opened; err != nil {
		t.Error(err)
	}
	h.kill()
	if !IsEnding(pid) {
		t.Error("a manager that is gone does not count as ending")
	}
}

// TestFirstThreadHasExited: the first thread of a manager may exit before those that hold its lock.
func TestFirstThreadHasExited(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	h := startHelper(t, helperWithoutFirstThread, helperArgs{Dir: dir}, nil)
	h.mustResult(t)
	pid := h.cmd.Process.Pid
	eventually(t, "the end of the first thread", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && strings.Contains(string(stat), ") Z ")
	})
	if holder, err := Holder(dir); err != nil || holder != pid {
		t.Errorf("holder %d, error %v; want %d", holder, err, pid)
	}
	if IsGone(pid) {
		t.Error("it counts as gone while it holds the lock")
	}
	h.kill()
	if !IsGone(pid) {
		t.Error("it does not count as gone after its end")
	}
}

// TestDyingProcessIsNotFoundRunning: what was killed together with its manager, and is not gone yet, is nothing to go on
// with.
func TestDyingProcessIsNotFoundRunning(t *testing.T) {
	t.Parallel()
	dir, id := newDir(t), newID()
	d := open(t, dir)
	p := start(t, d, sleeper(id))
	release := signals.KillSlowly(t, p.PID())
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	opened := make(chan State, 1)
	go func() {
		var state State
		d, err := Open(dir)
		if err == nil {
			p, findErr := d.Find(id)
			if findErr == nil {
				state = p.Status().State
			}
			err = errors.Join(findErr, d.Close())
		}
		if err != nil {
			state = State(err.Error())
		}
		opened <- state
	}()
	select {
	case state := <-opened:
		t.Errorf("it was found %s while it was dying", state)
	case <-time.After(shortTimeout):
		release()
		if state := <-opened; state != Exited {
			t.Errorf("it is %s, want %s", state, Exited)
		}
	}
}

func TestHolder(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	holder := func(want int) {
		t.Helper()
		if got, err := Holder(dir); err != nil || got != want {
			t.Errorf("holder %d, error %v; want %d", got, err, want)
		}
	}
	holder(0)
	d := open(t, dir)
	holder(os.Getpid())
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	holder(0)
	h := startHelper(t, "hold", helperArgs{Dir: dir}, nil)
	h.mustResult(t)
	holder(h.cmd.Process.Pid)
	h.kill()
	holder(0)
}

// TestLookingIsNoObstacle: somebody who asks for the holder at the very moment of an Open must not make it fail.
func TestLookingIsNoObstacle(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	if err := open(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	looked := make(chan error)
	go func() {
		var errs []error
		for {
			select {
			case <-done:
				looked <- errors.Join(errs...)
				return
			default:
				_, err := Holder(dir)
				errs = append(errs, err)
			}
		}
	}()
	for range 200 {
		d, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	if err := <-looked; err != nil {
		t.Error(err)
	}
}

// TestNothingIsInherited: what the manager got from its parent without close-on-exec, here the end of a pipe, must
// not live on in the shim or the child; a make or a shell script would wait for it.
func TestNothingIsInherited(t *testing.T) {
	t.Parallel()
	dir, id := newDir(t), newID()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer closeQuietly(r)
	h := startHelper(t, "start", helperArgs{Dir: dir, Spec: sleeper(id)}, nil, w, w, w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	h.mustResult(t)
	h.kill()
	if err := r.SetReadDeadline(time.Now().Add(waitTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r); err != nil {
		t.Errorf("somebody still has the pipe: %v", err)
	}
	if diff := cmp.Diff(census{Children: 1, Shims: 1}, count(t, id)); diff != "" {
		t.Errorf("processes (-want +got):\n%s", diff)
	}
	pid := strconv.Itoa(find(t, open(t, dir), id).PID())
	// A program that has only just begun may be reading its libraries.
	eventually(t, "the child to have three files and no other", func() bool {
		fds, err := os.ReadDir("/proc/" + pid + "/fd")
		return err == nil && len(fds) == 3
	})
}
