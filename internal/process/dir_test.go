package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPeek(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	if got, err := Peek(dir); got != nil || err != nil {
		t.Errorf("missing directory: %v, %v", got, err)
	}
	a, b := newID()+"-a", newID()+"-b"
	if a > b {
		a, b = b, a
	}
	d := open(t, dir)
	p := start(t, d, script(a, "exit 3"))
	start(t, d, sleeper(b))
	waitDone(t, p)
	for _, folder := range []string{"empty", "broken"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "broken", recordFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Peek(dir)
	if err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("the damaged record is not reported: %v", err)
	}
	want := []Status{{ID: a, State: Exited, ExitCode: 3}, {ID: b, State: Running}}
	if diff := cmp.Diff(want, got, ignoreTimes); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestDamagedRecordBlocksOnlyItself(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	if err := os.MkdirAll(filepath.Join(dir, "broken"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "broken", recordFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	id := newID()
	d := open(t, dir)
	start(t, d, sleeper(id))
	_, startErr := d.Start(sleeper("broken"))
	_, findErr := d.Find("broken")
	all, listErr := d.List()
	for call, err := range map[string]error{"start": startErr, "find": findErr, "list": listErr, "remove": d.Remove("broken")} {
		if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "broken")) {
			t.Errorf("%s: %v", call, err)
		}
	}
	if len(all) != 1 || all[0].ID() != id {
		t.Errorf("list: %v", all)
	}
}

func TestDiscardedRecordMakesRoomForItsID(t *testing.T) {
	t.Parallel()
	dir, broken, sound := newDir(t), newID(), newID()
	d := open(t, dir)
	start(t, d, sleeper(sound))
	waitDone(t, start(t, d, script(broken, "exit 1")))
	record := filepath.Join(dir, broken, recordFile)
	if err := os.WriteFile(record, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	d = reopen(t, d)
	var damage *DamagedError
	if _, err := d.Find(broken); !errors.As(err, &damage) || damage.ID != broken || damage.Folder != filepath.Dir(record) {
		t.Fatalf("find: %v", err)
	}
	for _, id := range []string{broken, sound, newID()} {
		if err := d.Discard(id); err != nil {
			t.Errorf("discard: %v", err)
		}
	}
	if _, err := d.Find(broken); !errors.Is(err, ErrNotFound) {
		t.Errorf("find after discard: %v", err)
	}
	start(t, d, sleeper(broken))
	if got := find(t, d, sound).Status().State; got != Running {
		t.Errorf("the process with a sound record is %s", got)
	}
}

func TestClosedDir(t *testing.T) {
	t.Parallel()
	d := open(t, newDir(t))
	id := newID()
	p := start(t, d, sleeper(id))
	for range 2 {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, startErr := d.Start(sleeper(newID()))
	_, findErr := d.Find(id)
	_, listErr := d.List()
	for call, err := range map[string]error{
		"start": startErr, "find": findErr, "list": listErr, "remove": d.Remove(id), "discard": d.Discard(id), "signal": p.Signal(syscall.SIGTERM),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", call, err)
		}
	}
	if got := find(t, open(t, d.path), id).Status().State; got != Running {
		t.Errorf("the process is %s after Close", got)
	}
}

func TestStateDirectoryRemovedByHand(t *testing.T) {
	t.Parallel()
	d := open(t, newDir(t))
	p := start(t, d, sleeper(newID()))
	if err := os.RemoveAll(d.path); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(t.Context(), StopOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := p.Status().State; got != Lost {
		t.Errorf("state %s", got)
	}
	if err := d.Remove(p.ID()); err != nil {
		t.Errorf("remove: %v", err)
	}
}

// TestCloseLeaksNothing is not parallel: it counts goroutines.
func TestCloseLeaksNothing(t *testing.T) {
	d := open(t, newDir(t))
	before := runtime.NumGoroutine()
	for range 5 {
		start(t, d, sleeper(newID()))
	}
	waitDone(t, start(t, d, script(newID(), "exit 1")))
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
	d = open(t, d.path)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	const many = 50
	d := open(t, newDir(t))
	prefix := newID()
	each := func(do func(id string) error) {
		t.Helper()
		var wg sync.WaitGroup
		for i := range many {
			wg.Go(func() {
				if err := do(fmt.Sprintf("%s-%d", prefix, i)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	each(func(id string) error {
		_, err := d.Start(sleeper(id))
		return err
	})
	d = reopen(t, d)
	each(func(id string) error {
		p, err := d.Find(id)
		if err != nil {
			return err
		}
		if p.Status().State != Running {
			return fmt.Errorf("%s is %s", id, p.Status().State)
		}
		if err := p.Stop(t.Context(), StopOptions{}); err != nil {
			return err
		}
		if got := p.Status(); got.State != Exited || got.Signal != "SIGTERM" {
			return fmt.Errorf("%s is %s by %s", id, got.State, got.Signal)
		}
		return d.Remove(id)
	})
	left, err := d.List()
	if err != nil || len(left) != 0 {
		t.Errorf("left: %d, %v", len(left), err)
	}
}

// TestConcurrentStartsOfOneID: exactly one of them wins.
func TestConcurrentStartsOfOneID(t *testing.T) {
	t.Parallel()
	d := open(t, newDir(t))
	id := newID()
	errs := make([]error, 8)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { _, errs[i] = d.Start(sleeper(id)) })
	}
	wg.Wait()
	started := 0
	for _, err := range errs {
		switch {
		case err == nil:
			started++
		case !errors.Is(err, ErrExists):
			t.Error(err)
		}
	}
	if started != 1 {
		t.Errorf("%d of them started a process", started)
	}
}
