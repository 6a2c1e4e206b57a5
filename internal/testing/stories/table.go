package stories

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// Story is something that happens to an object.
type Story[W any] struct {
	Name string
	// Before creates the objects, and lets them settle; nil if Happen does all.
	Before func(W)
	Happen func(W)
	// End checks how it must end, whatever has failed.
	End func(W)
}

// Table has the stories of a kind. Each is told with each fault at each write of the reconciler, in a
// world of its own in memory. Without a fault, it is told on an API server as well.
type Table[W Actor] struct {
	// New returns a new world. It does not call Parallel.
	New func(*testing.T, API) W
	// Steps is how often the object is reconciled after the story has happened. It has to be enough for
	// all writes: later faults are not injected.
	Steps int
	// OnCall calls at before each call that changes something else than the API, where faults happen as at
	// writes. Nil means that there are no such calls, or no faults there.
	OnCall func(w W, at func() error)
	// Always checks what must hold after each step; nil means nothing.
	Always func(W)
	// Finish lets the objects settle when nothing fails any more; nil means Settle.
	Finish  func(W)
	Stories []Story[W]
}

// Actor is a World, or embeds one.
type Actor interface {
	testing.TB
	Step() (reconcile.Result, error)
	Settle()
	Events() []string
	inject(fault, int, any) *injected
	now() any
}

// fault is what happens at a write.
type fault struct {
	name string
	// moment is when it happens, relative to the write.
	moment harness.Moment
	// kills means that the process is killed. Otherwise, the write returns an error.
	kills bool
	// isAway means that all requests and calls fail from then on.
	isAway bool
	// isBehind means that the cache does not see the write, nor any later change; isOld, that it has the
	// object as it was before the story. With kills, it is the cache of the next process.
	isBehind, isOld bool
}

var faults = []fault{
	{name: "killed before a write", moment: harness.Before, kills: true}, // and after a call of a driver or engine
	{name: "killed after a write", moment: harness.After, kills: true},
	{name: "a write is lost", moment: harness.Before},
	{name: "the response to a write is lost", moment: harness.After},
	{name: "the API server is away", moment: harness.Before, isAway: true},
	{name: "the cache stays behind", moment: harness.After, isBehind: true},
	{name: "killed after a write, the cache of the next process stays behind", moment: harness.After, kills: true, isBehind: true},
	{name: "killed after a write, the cache of the next process has the object as it was", moment: harness.After, kills: true, isOld: true},
}

// verbCall is the verb of a step that is a call, where faults happen before it: what happens after it is a fault before the next step.
const verbCall = "call"

// killed is the panic of a process that is killed.
type killed struct{}

// errLost is the error of a request that is lost.
var errLost = errors.New("connection reset")

// Run tells all stories. They run in parallel.
func (s Table[W]) Run(t *testing.T) {
	if s.Always == nil {
		s.Always = func(W) {}
	}
	if s.Finish == nil {
		s.Finish = func(w W) { w.Settle() }
	}
	for _, story := range s.Stories {
		t.Run(story.Name, func(t *testing.T) {
			t.Parallel()
			steps := s.tell(t, Server, story, fault{}, 0)
			if diff := cmp.Diff(steps, s.tell(t, Memory, story, fault{}, 0)); diff != "" {
				t.Errorf("writes and calls (-on the API server +in memory):\n%s", diff)
			}
			for _, fault := range faults {
				for n, step := range steps {
					if step.Verb == verbCall && fault.moment != harness.Before {
						continue // nothing happens after a call: it would be the story without a fault
					}
					t.Run(fmt.Sprintf("%s, %d %s %s", fault.name, n, step.Verb, step.Subresource), func(t *testing.T) {
						s.tell(t, Memory, story, fault, n)
					})
				}
			}
		})
	}
}

// tell tells a story with a fault at the n-th write or call, which has to happen, and returns all of them. Without a moment, there
// is no fault.
func (s Table[W]) tell(t *testing.T, api API, story Story[W], fault fault, n int) []harness.Request {
	t.Helper()
	w := s.New(t, api)
	if story.Before != nil {
		story.Before(w)
	}
	before := w.now()
	story.Happen(w)
	w.Events()
	injected := w.inject(fault, n, before)
	if s.OnCall != nil {
		s.OnCall(w, func() error { return injected.at(harness.Before, harness.Request{Verb: verbCall}) })
	}
	for range s.Steps {
		injected.step(t, w)
		s.Always(w)
	}
	if fault.moment != "" && !injected.reached {
		t.Error("the fault never happened")
	}
	injected.isOver = true
	s.Finish(w)
	s.Always(w)
	story.End(w)
	return injected.steps
}

// injected is a fault at a write or call of a process.
type injected struct {
	fault
	// steps are the writes and calls until it ends.
	steps []harness.Request
	// reached means that it has happened, isOver that it has ended.
	reached, isOver bool
	// failures counts the requests and calls that failed, and failedAt is how many steps there were at the last one.
	failures, failedAt int
	// events are the events since.
	events  []string
	restart func()
	// at is called before and after each request, and before each call.
	at func(harness.Moment, harness.Request) error
}

// now returns the object; nil if it does not exist.
func (w *World[O]) now() any {
	if object, found := w.read(w.Client); found {
		return object
	}
	return nil
}

// inject restarts the process with a fault at its n-th write or call. before is the object before the story.
func (w *World[O]) inject(f fault, n int, before any) *injected {
	i := &injected{fault: f}
	old := client.Reader(overlay{w.Client, before}) // the cache that is behind
	i.at = func(moment harness.Moment, request harness.Request) error {
		isStep := request.IsWrite() && !i.isOver
		if isStep && moment == harness.Before {
			if i.steps = append(i.steps, request); len(i.steps) == n+1 && i.isBehind {
				old = w.frozen(w.Client)
			}
		}
		isNow := isStep && len(i.steps) == n+1 && moment == i.moment && !i.reached
		i.reached = i.reached || isNow
		switch {
		case isNow && i.kills:
			panic(killed{})
		case isNow && !i.isBehind, i.isAway && i.reached && !i.isOver && moment == harness.Before:
			i.failures++
			i.failedAt = len(i.steps)
			return errLost
		}
		return nil
	}
	written := harness.Observe(w.Client,
		func(r harness.Request) error { return i.at(harness.Before, r) },
		func(r harness.Request) error { return i.at(harness.After, r) })
	cached := harness.ReadThrough(written, func() client.Reader {
		if (i.isBehind || i.isOld) && i.reached && !i.isOver {
			return old
		}
		return w.Client
	})
	i.restart = func() { w.useClients(cached, written) }
	i.restart()
	return i
}

// overlay reads one object as it was, and all others as they are.
type overlay struct {
	client.Reader
	object any
}

// Get gets an object.
func (o overlay) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	past, isObject := o.object.(client.Object)
	if !isObject || reflect.TypeOf(past) != reflect.TypeOf(into) || client.ObjectKeyFromObject(past) != key {
		return o.Reader.Get(ctx, key, into, opts...)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(past.DeepCopyObject()).Elem())
	return nil
}

// step is a step of a process that may be killed in it. A failed write has to be retried, and a cache
// that is behind is no failure and no news.
func (i *injected) step(t *testing.T, w Actor) {
	defer func() {
		if r := recover(); r == any(killed{}) {
			i.restart()
		} else if r != nil {
			panic(r)
		}
	}()
	failures := i.failures
	result, err := w.Step()
	switch {
	case i.failures > failures && i.failedAt == len(i.steps) && err == nil && result.RequeueAfter == 0: // no later write has an event
		t.Error("a request failed, and Reconcile neither returns an error nor a time to look again")
	case i.failures == failures && err != nil:
		t.Errorf("no request failed, and Reconcile returns %v", err)
	}
	for _, event := range w.Events() {
		if strings.HasPrefix(event, "Warning ") && i.isBehind && !i.kills && slices.Contains(i.events, event) {
			t.Errorf("a cache that is behind is no reason to repeat an event: %s", event)
		}
		i.events = append(i.events, event)
	}
}
