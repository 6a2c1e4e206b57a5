package virtualmachine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/fake"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// secondHost returns a driver on another host.
func (w *fixture) secondHost() *fake.Driver {
	return fake.New(fake.Options{Clock: w.Clock, BootTime: -1, Host: otherHost})
}

// becomeLeader makes the manager on the host of driver the leader.
func (w *fixture) becomeLeader(driver *fake.Driver) {
	w.backend = driver
	w.Restart()
}

func (w *fixture) annotate(host string) {
	w.Helper()
	w.Change(func(vm *v1alpha1.VirtualMachine) {
		vm.Annotations = map[string]string{v1alpha1.AnnotationForgetHost: host}
	})
}

func TestHostIsWrittenDownBeforeTheServer(t *testing.T) {
	w := newFixture(t)
	w.create()
	for range 5 {
		if w.ReconcileOnce(); len(w.backend.Calls()) > 0 {
			break
		}
		if got := w.Object().Status.Host; got != nil && (got.ID != thisHost.ID || got.Name != thisHost.Name || got.Driver != fake.Name) {
			t.Errorf("the host is %+v", got)
		}
	}
	if len(w.backend.UIDs()) == 0 {
		t.Fatal("there is no server")
	}
	first := w.Wrote()
	if want := []harness.Request{{Verb: "patch"}, {Verb: "update", Subresource: "status"}}; !slices.Equal(first[:2], want) {
		t.Errorf("the first writes are %v, want %v", first, want)
	}
}

// A leader on another host creates no second server, and does not touch the first one.
func TestLeaderOnAnotherHost(t *testing.T) {
	w := newFixture(t)
	w.createReady()
	first, second, uid := w.backend, w.secondHost(), w.uid()
	w.becomeLeader(second)
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseUnknown, isUnknown, v1alpha1.ReasonOnAnotherHost)
	if got := w.Object().Status; !strings.Contains(got.Reason, thisHost.Name) || !strings.Contains(got.Reason, v1alpha1.AnnotationForgetHost+"="+thisHost.ID) {
		t.Errorf("the reason lacks the host or the advice: %s", got.Reason)
	}
	if got := w.events(); !slices.Equal(got, []string{"Warning OnAnotherHost"}) {
		t.Errorf("events: %v", got)
	}
	w.Change(withAction(v1alpha1.ActionStopped))
	w.reconcileUntilStable()
	w.collectOrphans(t.Context())
	w.becomeLeader(first)
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonStopped)
	w.expectCalls("Stop")

	w.becomeLeader(second)
	w.Delete()
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseTerminating, isFalse, v1alpha1.ReasonOnAnotherHost)
	if calls := second.Calls(); len(calls) > 0 {
		t.Errorf("calls on the wrong host: %v", calls)
	}
	if servers := first.UIDs(); !slices.Equal(servers, []types.UID{uid}) {
		t.Errorf("the servers of the first host are %v", servers)
	}
	w.becomeLeader(first)
	w.reconcileUntilStable()
	if !w.IsGone() || len(first.UIDs()) > 0 {
		t.Errorf("gone: %t, servers: %v", w.IsGone(), first.UIDs())
	}
}

// Whatever write is the last one of a leader, or fails: with the next one, on another host, there is one server.
func TestLeaderOnAnotherHostAfterAKill(t *testing.T) {
	for writes := range 4 {
		t.Run(fmt.Sprintf("after %d writes", writes), func(t *testing.T) {
			w := newFixture(t)
			w.create()
			first, second := w.backend, w.secondHost()
			faulty, _ := harness.OnWrite(w.Client, writes, harness.Before, func() error { return errLost })
			w.UseClient(faulty)
			for range 2 * writes {
				_, _ = w.Reconcile(t.Context(), w.Object()) // one of them fails
				if len(w.Writes) > writes {
					break
				}
			}
			for _, leader := range []*fake.Driver{second, first, second} {
				w.becomeLeader(leader)
				w.reconcileUntilStable()
			}
			if got := append(first.UIDs(), second.UIDs()...); len(got) != 1 {
				t.Errorf("the servers are %v, want one", got)
			}
			w.Delete()
			for _, leader := range []*fake.Driver{second, first} {
				w.becomeLeader(leader)
				w.reconcileUntilStable()
			}
			if got := append(first.UIDs(), second.UIDs()...); !w.IsGone() || len(got) > 0 {
				t.Errorf("gone: %t, servers: %v", w.IsGone(), got)
			}
		})
	}
}

func TestHostThatIsGivenUp(t *testing.T) {
	t.Run("the server is made anew", func(t *testing.T) {
		w := newFixture(t)
		w.createReady()
		w.becomeLeader(w.secondHost())
		w.annotate("another")
		w.reconcileUntilStable()
		w.expect(v1alpha1.PhaseUnknown, isUnknown, v1alpha1.ReasonOnAnotherHost)
		w.expectCalls()
		w.events()
		w.annotate(thisHost.ID)
		w.reconcileUntilStable()
		w.expect(v1alpha1.PhaseActive, isFalse, v1alpha1.ReasonGuestBooting)
		w.expectCalls("Create", "Start")
		if got := w.events(); !slices.Equal(got, []string{"Warning ServerLost"}) {
			t.Errorf("events: %v", got)
		}
		if got := w.Object().Status.Host; got.ID != otherHost.ID {
			t.Errorf("the host is %+v", got)
		}
	})
	t.Run("it is deleted", func(t *testing.T) {
		w := newFixture(t)
		w.createReady()
		w.becomeLeader(w.secondHost())
		w.Delete()
		w.reconcileUntilStable()
		w.annotate(thisHost.ID)
		w.reconcileUntilStable()
		if !w.IsGone() {
			t.Error("it is not deleted")
		}
	})
}

// A host that was renamed is the same one.
func TestHostThatIsRenamed(t *testing.T) {
	w := newFixture(t)
	w.createReady()
	renamed := backend.Host{ID: thisHost.ID, Name: "renamed"}
	vm, observed := w.Object(), observedServer(newServer(backend.StateRunning))
	observed.host = renamed
	status := summarize(vm, observed, decide(vm, observed, noon), acted{})
	if got := status.Host; got.Name != "renamed" || got.ID != thisHost.ID {
		t.Errorf("the host is %+v", got)
	}
}
