package operation

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// fixture is an object whose operations are recorded.
type fixture struct {
	*testing.T
	Slot
	all sync.WaitGroup

	telling sync.Mutex
	told    []string
}

// begin begins an operation that ends with an error when told, or when it is cancelled.
func (f *fixture) begin(kind backend.Task, end <-chan error, change ...func(*Work)) error {
	w := Work{
		Kind: kind,
		Do: func(ctx context.Context) error {
			select {
			case err := <-end:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		},
		Ended: func(err error) {
			f.tell(string(kind) + " ended")
			if err != nil {
				f.tell(err.Error())
			}
			if !f.Busy() {
				f.Error("it counts as ended before its end is recorded")
			}
		},
		Changed: func() { f.tell("changed") },
	}
	for _, c := range change {
		c(&w)
	}
	return f.Begin(f.Context(), &f.all, w)
}

func (f *fixture) tell(what string) {
	f.telling.Lock()
	defer f.telling.Unlock()
	f.told = append(f.told, what)
}

func (f *fixture) expect(what ...string) {
	f.Helper()
	synctest.Wait()
	if !slices.Equal(f.told, what) {
		f.Errorf("told %q, want %q", f.told, what)
	}
	f.told = nil
}

func run(t *testing.T, test func(*fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{T: t}
		test(f)
		f.all.Wait()
	})
}

func TestOneOperationAtATime(t *testing.T) {
	run(t, func(f *fixture) {
		end := make(chan error)
		if err := f.begin(backend.TaskStart, end, func(w *Work) { w.Progress = "first" }); err != nil {
			f.Fatal(err)
		}
		if kind, progress := f.State(); kind != backend.TaskStart || progress != "first" || !f.Busy() {
			f.Errorf("%s, %s", kind, progress)
		}
		if !f.SetProgress("second") || f.SetProgress("second") {
			f.Error("the progress changes once")
		}
		if err := f.begin(backend.TaskStart, nil); !errors.Is(err, backend.ErrInProgress) {
			f.Errorf("another one of its kind: %v", err)
		}
		if err := f.begin(backend.TaskStop, nil); err == nil || errors.Is(err, backend.ErrInProgress) || err.Error() != "the task start is still running" {
			f.Errorf("one of another kind: %v", err)
		}
		waited := make(chan error)
		go func() { waited <- f.Wait(f.Context()) }()
		f.expect()
		end <- errors.New("it has failed")
		if err := <-waited; err != nil {
			f.Error(err)
		}
		f.expect("start ended", "it has failed", "changed")
		if kind, progress := f.State(); kind != backend.TaskNone || progress != "" || f.Busy() || f.SetProgress("late") || f.Cancel() {
			f.Errorf("after its end: %s, %s", kind, progress)
		}
	})
}

func TestLastFailureIsKept(t *testing.T) {
	run(t, func(f *fixture) {
		begun, failed := time.Now(), errors.New("it has failed")
		expect := func(kind backend.Task, want error) {
			f.Helper()
			if at, err := f.Failure(kind); !errors.Is(err, want) || want != nil && at != begun.Add(time.Second) {
				f.Errorf("%s: %v at %s", kind, err, at)
			}
		}
		expect(backend.TaskCreate, nil)
		end := make(chan error)
		if err := f.begin(backend.TaskCreate, end, func(w *Work) { w.Ended, w.Changed = nil, nil }); err != nil {
			f.Fatal(err)
		}
		<-time.After(time.Second)
		end <- failed
		f.all.Wait()
		expect(backend.TaskCreate, failed)
		expect(backend.TaskStart, nil)
		if err := f.begin(backend.TaskStart, end); err != nil {
			f.Fatal(err)
		}
		expect(backend.TaskCreate, nil)
		end <- nil
		f.all.Wait()
		expect(backend.TaskStart, nil)
	})
}

func TestCancelledOperationHasNotFailed(t *testing.T) {
	run(t, func(f *fixture) {
		if err := f.begin(backend.TaskCreate, nil); err != nil {
			f.Fatal(err)
		}
		if !f.Cancel() {
			f.Error("nothing is running")
		}
		f.expect("create ended", "changed")
		if _, err := f.Failure(backend.TaskCreate); err != nil {
			f.Error(err)
		}
	})
}

func TestReplacedOperationEndsFirst(t *testing.T) {
	run(t, func(f *fixture) {
		slow, end := make(chan struct{}), make(chan error)
		err := f.begin(backend.TaskCreate, nil, func(w *Work) {
			w.Do = func(ctx context.Context) error {
				<-ctx.Done()
				<-slow
				f.tell("create cancelled")
				return ctx.Err()
			}
		})
		if err != nil {
			f.Fatal(err)
		}
		err = f.begin(backend.TaskDelete, end, func(w *Work) {
			do := w.Do
			w.Do = func(ctx context.Context) error {
				f.tell("delete begun")
				return do(ctx)
			}
		})
		if kind, _ := f.State(); err != nil || kind != backend.TaskDelete {
			f.Errorf("%s, %v", kind, err)
		}
		f.expect()
		slow <- struct{}{}
		synctest.Wait()
		slices.Sort(f.told) // the notification about one and the beginning of the other are not ordered
		f.expect("changed", "create cancelled", "delete begun")
		ctx, cancel := context.WithCancel(f.Context())
		cancel()
		if err := f.Wait(ctx); !errors.Is(err, context.Canceled) {
			f.Errorf("Wait: %v", err)
		}
		end <- nil
		f.expect("delete ended", "changed")
	})
}
