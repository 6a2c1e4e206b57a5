package virtualmachine

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

func idle(after time.Duration, wakes bool) change {
	return func(vm *v1alpha1.VirtualMachine) {
		vm.Spec.Idle = &v1alpha1.VirtualMachineIdle{SleepAfter: metav1.Duration{Duration: after}, WakeOnConnection: ptr.To(wakes)}
	}
}

func activeAt(at time.Time) func(*backend.Server) {
	return func(s *backend.Server) { s.LastActive = at }
}

// asleepSince puts a server to sleep.
func asleepSince(at time.Time, options backend.SleepOptions, wanted bool) *backend.Server {
	return newServer(backend.StateAsleep, func(s *backend.Server) {
		s.Asleep = &backend.Asleep{SleepOptions: options, Since: at, Wanted: wanted}
	})
}

func TestIdleMachineSleeps(t *testing.T) {
	const half = 30 * time.Minute
	wakes, stays := backend.SleepOptions{Idle: true, WakeOnConnection: true}, backend.SleepOptions{Idle: true}
	ago := func(d time.Duration) time.Time { return noon.Add(-d) }
	running := func(last time.Time) *backend.Server { return newServer(backend.StateRunning, activeAt(last)) }
	old := createdAt(ago(100 * time.Hour))
	for _, test := range []struct {
		name   string
		vm     *v1alpha1.VirtualMachine
		server *backend.Server
		want   action
		by     string
		change time.Time
	}{
		{"in use a moment ago", newVM(old, idle(half, true)), running(noon), keep, "spec.action", noon.Add(half)},
		{"quiet, but not for long enough", newVM(old, idle(half, true)), running(ago(half - time.Second)), keep, "spec.action", noon.Add(time.Second)},
		{"quiet for long enough", newVM(old, idle(half, true)), running(ago(half)), sleep, byIdle, time.Time{}},
		{"without spec.idle", newVM(old), running(ago(half)), keep, "spec.action", time.Time{}},
		{"the driver does not know", newVM(old, idle(half, true)), newServer(backend.StateRunning), keep, "spec.action", time.Time{}},
		{"woken a moment ago", newVM(old, idle(half, true), woken(ago(time.Minute))), running(ago(half)), keep, "spec.action", noon.Add(half - time.Minute)},
		{"woken by its schedule a moment ago", newVM(old, idle(half, true), scheduled("55 11 * * *", "", "")), running(ago(half)), keep, "spec.action", noon.Add(half - 5*time.Minute)},
		{"to be paused", newVM(old, idle(half, true), withAction(v1alpha1.ActionPaused)), running(ago(half)), pause, "spec.action", time.Time{}},
		{"to be stopped", newVM(old, idle(half, true), withAction(v1alpha1.ActionStopped)), running(ago(half)), stop, "spec.action", time.Time{}},
		{"off", newVM(old, idle(half, true)), newServer(backend.StateStopped), start, "spec.action", time.Time{}},
		{"deleted", newVM(old, idle(half, true), deleted), running(ago(half)), remove, byIdle, time.Time{}},

		{"asleep", newVM(old, idle(half, true)), asleepSince(ago(time.Hour), wakes, false), keep, byIdle, time.Time{}},
		{"asleep, and someone has connected", newVM(old, idle(half, true)), asleepSince(ago(time.Hour), wakes, true), start, "spec.action", time.Time{}},
		{"asleep, and someone has connected who may no longer wake it", newVM(old, idle(half, false)), asleepSince(ago(time.Hour), wakes, true), sleep, byIdle, time.Time{}},
		{"asleep, and connections wake it from now on", newVM(old, idle(half, true)), asleepSince(ago(time.Hour), stays, false), sleep, byIdle, time.Time{}},
		{"woken in the second in which it fell asleep", newVM(old, idle(half, true), woken(ago(time.Hour))), asleepSince(ago(time.Hour-time.Millisecond), wakes, false), start, "spec.action", time.Time{}},
		{"woken before it fell asleep", newVM(old, idle(half, true), woken(ago(2*time.Hour))), asleepSince(ago(time.Hour), wakes, false), keep, byIdle, time.Time{}},
		{"to be woken later", newVM(old, idle(half, true), woken(noon.Add(time.Minute))), asleepSince(ago(time.Hour), wakes, false), keep, byIdle, noon.Add(time.Minute)},
		{"a time to wake has passed", newVM(old, idle(half, true), scheduled("30 11 * * *", "", "")), asleepSince(ago(time.Hour), wakes, false), start, "spec.action", noon.Add(23*time.Hour + half)},
		{"it falls asleep because of its schedule now", newVM(old, idle(half, true), scheduled("", "0 12 * * *", "")), asleepSince(ago(time.Hour), wakes, false), sleep, bySchedule, noon.Add(24 * time.Hour)},
		{"it is to be asleep in any case", newVM(old, idle(half, true), withAction(v1alpha1.ActionAsleep)), asleepSince(ago(time.Hour), wakes, false), sleep, "spec.action", time.Time{}},
		{"spec.idle was removed", newVM(old), asleepSince(ago(time.Hour), wakes, false), start, "spec.action", time.Time{}},
		{"it slept as requested, and is to be active", newVM(old, idle(half, true)), asleepSince(ago(time.Hour), backend.SleepOptions{}, false), start, "spec.action", time.Time{}},
		{"it is to be restarted when it is awake", newVM(old, idle(half, true), hadServer, restartRequestedAt(noon)), asleepSince(ago(time.Hour), wakes, false), keep, byIdle, time.Time{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := decide(test.vm, observedServer(test.server), noon)
			if got.action != test.want || got.power.by != test.by || !got.power.change.Equal(test.change) {
				t.Errorf("%s by %s until %v, want %s by %s until %v", got.action, got.power.by, got.power.change, test.want, test.by, test.change)
			}
			if got.action == sleep && got.power.sleep.WakeOnConnection != (test.by == byIdle && *test.vm.Spec.Idle.WakeOnConnection) {
				t.Errorf("it sleeps with %+v", got.power.sleep)
			}
		})
	}
}

// An idle machine falls asleep, and wakes when someone connects to it, or as requested. A restart of the manager changes nothing.
func TestIdle(t *testing.T) {
	w := newFixture(t)
	w.Clock.SetTime(time.Now().Add(time.Hour)) // after the creation by the clock of the API server
	w.createReady(idle(30*time.Minute, true))
	began := w.Clock.Now()
	if result := w.ReconcileOnce(); result.RequeueAfter <= 0 || result.RequeueAfter > 30*time.Minute {
		t.Errorf("it is requeued after %v, want 30 min at most", result.RequeueAfter)
	}
	version := w.Object().ResourceVersion
	w.Clock.SetTime(began.Add(20 * time.Minute))
	w.backend.SetActive(w.uid(), w.Clock.Now())
	w.Clock.SetTime(began.Add(40 * time.Minute))
	w.reconcileUntilStable()
	w.expectCalls()
	if now := w.Object().ResourceVersion; now != version {
		t.Errorf("a look at the activity was written: version %s, was %s", now, version)
	}

	// Someone connects when it is about to fall asleep.
	w.Clock.SetTime(began.Add(time.Hour))
	w.backend.Fail("Sleep", backend.ErrActive)
	w.ReconcileOnce()
	w.expectCalls("Sleep")
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonGuestReady)

	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonAsleep)
	w.expectCalls("Sleep")
	want := "The machine is asleep, as requested by spec.idle. It wakes when someone connects to it, or when spec.wakeRequestedAt is set to the current time"
	if got := w.Object().Status.Reason; got != want {
		t.Errorf("the reason is %q, want %q", got, want)
	}
	w.Restart()
	w.Clock.SetTime(began.Add(2 * time.Hour))
	w.reconcileUntilStable()
	w.expectCalls()

	w.backend.Connect(w.uid())
	w.reconcileUntilStable()
	w.expectCalls("Start")
	w.backend.Boot(w.uid())
	w.Clock.SetTime(began.Add(2*time.Hour + 29*time.Minute))
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonGuestReady)
	w.expectCalls()
	if got, want := strings.Join(w.events(), ", "), "Normal FallingAsleep, Normal ClientConnected"; got != want {
		t.Errorf("events are %q, want %q", got, want)
	}

	// Connections do not wake it any more while it is asleep.
	w.Clock.SetTime(began.Add(3 * time.Hour))
	w.reconcileUntilStable()
	w.Change(idle(30*time.Minute, false))
	w.reconcileUntilStable()
	w.expectCalls("Sleep", "Sleep")
	w.backend.Connect(w.uid())
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonAsleep)
	w.Change(woken(w.Clock.Now()))
	w.reconcileUntilStable()
	w.expectCalls("Start")
}
