package virtualmachine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/fake"
	"github.com/keelson-dev/keelson/internal/kube"
)

const (
	isTrue    = metav1.ConditionTrue
	isFalse   = metav1.ConditionFalse
	isUnknown = metav1.ConditionUnknown
)

func TestFromNothingToReady(t *testing.T) {
	w := newFixture(t)
	w.backend.Hold(backend.TaskCreate)
	w.backend.Hold(backend.TaskStart)
	w.create()
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseCreating, isFalse, v1alpha1.ReasonCreating)
	w.backend.Release(backend.TaskCreate)
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseCreating, isFalse, v1alpha1.ReasonCreating)
	w.Pass(firstStartDelay)
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseCreating, isFalse, v1alpha1.ReasonStarting)
	w.backend.Release(backend.TaskStart)
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isFalse, v1alpha1.ReasonGuestBooting)
	w.backend.Boot(w.uid())
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonGuestReady)
	w.expectCalls("Create", "Start")
	if got := len(w.Wrote()); got > 5 {
		t.Errorf("%d writes until it was steady, one of them because the start took long; want 5 at most", got)
	}
	want := &v1alpha1.Server{
		ID: "fake-" + string(w.uid()), State: v1alpha1.ServerRunning, Run: "run-1",
		Usage: &v1alpha1.Usage{CPU: 1, Memory: 10}, Addresses: []string{"10.0.2.15"},
	}
	got := w.Object().Status.Server
	want.StartedAt = got.StartedAt
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status.server (-want +got):\n%s", diff)
	}
	w.reconcileUntilStable()
	if got := w.Wrote(); len(got) > 0 {
		t.Errorf("writes in a steady state: %v", got)
	}
}

func TestImageWithoutAgentIsReadyWhenItRuns(t *testing.T) {
	w := newFixture(t)
	w.create(func(vm *v1alpha1.VirtualMachine) {
		vm.Spec.Image = &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: "/image"}, Agent: ptr.To(false)}
	})
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonRunning)
}

func TestPower(t *testing.T) {
	w := newFixture(t)
	w.createReady()
	w.Change(withAction(v1alpha1.ActionPaused))
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonPaused)
	w.Change(withAction(v1alpha1.ActionActive))
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonGuestReady)
	w.expectCalls("Pause", "Resume")

	w.backend.Hold(backend.TaskStop)
	w.Change(withAction(v1alpha1.ActionStopped))
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isFalse, v1alpha1.ReasonStopping)
	w.backend.Release(backend.TaskStop)
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonStopped)
	w.Change(withAction(v1alpha1.ActionActive))
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isFalse, v1alpha1.ReasonGuestBooting)
	w.expectCalls("Stop", "Start")
	if got := w.Object().Status.Restarts; got != 0 {
		t.Errorf("%d restarts are counted that were asked for", got)
	}
}

func TestCreatedStoppedIsNotStarted(t *testing.T) {
	w := newFixture(t)
	w.create(withAction(v1alpha1.ActionStopped))
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonStopped)
	w.expectCalls("Create")
}

func TestRestartOnRequestHappensOnce(t *testing.T) {
	w := newFixture(t)
	w.createReady()
	at := metav1.NewTime(w.Clock.Now()).Rfc3339Copy()
	w.Change(func(vm *v1alpha1.VirtualMachine) { vm.Spec.RestartRequestedAt = &at })
	w.reconcileUntilStable()
	w.expectCalls("Stop", "Start")
	w.backend.Boot(w.uid())
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonGuestReady)
	w.Restart()
	w.reconcileUntilStable()
	w.expectCalls()
	if got := w.Object().Status; !got.LastRestartRequestedAt.Equal(&at) || got.PendingRestart != nil || got.Restarts != 0 {
		t.Errorf("status after the restart: %+v", got)
	}
}

// A time that comes while the guest is off restarts it, too.
func TestRestartAtALaterTimeStartsAGuestThatIsOff(t *testing.T) {
	for _, test := range []struct {
		name    string
		policy  v1alpha1.RestartPolicy
		crashes int
		reason  string
	}{
		{"the policy leaves it off", v1alpha1.RestartNever, 1, v1alpha1.ReasonGuestStopped},
		{"it waits for the next attempt", v1alpha1.RestartAlways, 5, v1alpha1.ReasonBackOff},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newFixture(t)
			at := metav1.NewTime(w.Clock.Now().Add(250 * time.Second)).Rfc3339Copy()
			w.createReady(policy(test.policy), restartRequestedAt(at.Time))
			for range test.crashes {
				if failure := w.Object().Status.StartFailure; failure != nil {
					w.Clock.SetTime(failure.RetryAfter.Time)
					w.reconcileUntilStable()
				}
				w.backend.Crash(w.uid(), backend.CauseHost, "")
				w.reconcileUntilStable()
			}
			w.expect(w.Object().Status.Phase, isFalse, test.reason)
			w.backend.Calls()
			if left, again := at.Sub(w.Clock.Now()), w.ReconcileOnce().RequeueAfter; again != left {
				t.Fatalf("it is looked at again after %v, want %v", again, left)
			}
			w.Clock.SetTime(at.Time)
			w.reconcileUntilStable()
			w.expectCalls("Start")
			w.expect(v1alpha1.PhaseActive, isFalse, v1alpha1.ReasonGuestBooting)
			if got := w.Object().Status; !got.LastRestartRequestedAt.Equal(&at) || got.StartFailure != nil {
				t.Errorf("status after the restart: %+v", got)
			}
		})
	}
}

func TestGuestThatStopsByItself(t *testing.T) {
	for _, test := range []struct {
		name   string
		policy v1alpha1.RestartPolicy
		cause  backend.Cause
		calls  []string
		count  int32
		ready  metav1.ConditionStatus
		reason string
	}{
		{"killed, Always", v1alpha1.RestartAlways, backend.CauseHost, []string{"Start"}, 1, isFalse, v1alpha1.ReasonGuestBooting},
		{"powered off, OnFailure", v1alpha1.RestartOnFailure, backend.CauseGuestShutdown, nil, 0, isTrue, v1alpha1.ReasonGuestStopped},
		{"powered off, Never", v1alpha1.RestartNever, backend.CauseGuestShutdown, nil, 0, isTrue, v1alpha1.ReasonGuestStopped},
		{"crashed, OnFailure", v1alpha1.RestartOnFailure, backend.CauseGuestPanic, []string{"Start"}, 1, isFalse, v1alpha1.ReasonGuestBooting},
		{"crashed, Never", v1alpha1.RestartNever, backend.CauseGuestPanic, nil, 0, isFalse, v1alpha1.ReasonGuestStopped},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newFixture(t)
			w.createReady(policy(test.policy))
			w.backend.Crash(w.uid(), test.cause, "as the test wants")
			w.reconcileUntilStable()
			w.expect(v1alpha1.PhaseActive, test.ready, test.reason)
			w.expectCalls(test.calls...)
			if got := w.Object().Status.Restarts; got != test.count {
				t.Errorf("%d restarts are counted, want %d", got, test.count)
			}
			if got := w.Wrote(); len(got) > 3 {
				t.Errorf("%d writes for one end, want 3 at most: %v", len(got), got)
			}
			if events := w.events(); len(events) != 1 || !strings.HasPrefix(events[0], "Warning") {
				t.Errorf("events: %v, want one warning", events)
			}
		})
	}
}

func TestCrashLoopBacksOff(t *testing.T) {
	w := newFixture(t)
	w.createReady()
	w.backend.Crash(w.uid(), backend.CauseHost, "")
	w.reconcileUntilStable()
	w.expectCalls("Start")
	w.backend.Crash(w.uid(), backend.CauseHost, "")
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseFailed, isFalse, v1alpha1.ReasonBackOff)
	w.expectCalls()
	due := w.Object().Status.StartFailure.RetryAfter
	if !strings.Contains(w.Object().Status.Reason, timestamp(due.Time)) {
		t.Errorf("the reason does not say that the next attempt is at %s: %s", due, w.Object().Status.Reason)
	}
	w.Clock.SetTime(due.Time)
	w.reconcileUntilStable()
	w.expectCalls("Start")
	w.expect(v1alpha1.PhaseActive, isFalse, v1alpha1.ReasonGuestBooting)

	// A good run makes up for it.
	w.backend.Boot(w.uid())
	w.reconcileUntilStable()
	w.Pass(stableRun)
	w.reconcileUntilStable()
	if got := w.Object().Status; got.StartFailure != nil || got.Restarts != 2 {
		t.Errorf("after a good run: %+v, %d restarts", got.StartFailure, got.Restarts)
	}
}

func TestAttemptsThatFail(t *testing.T) {
	broken := errors.New("the disk is full")
	t.Run("the call to create", func(t *testing.T) {
		w := newFixture(t)
		w.backend.Fail("Create", broken)
		w.create()
		w.reconcileUntilStable()
		w.expect(v1alpha1.PhaseFailed, isFalse, v1alpha1.ReasonCreateFailed)
		w.expectCalls("Create")
		w.Pass(backoffUnit)
		w.reconcileUntilStable()
		w.expect(v1alpha1.PhaseActive, isFalse, v1alpha1.ReasonGuestBooting)
	})
	t.Run("the task to create", func(t *testing.T) {
		w := newFixture(t)
		w.backend.Hold(backend.TaskCreate)
		w.create()
		w.reconcileUntilStable()
		w.backend.FailTask(w.uid(), "the digest is another")
		w.reconcileUntilStable()
		w.expect(v1alpha1.PhaseFailed, isFalse, v1alpha1.ReasonCreateFailed)
		if got := w.Object().Status; !strings.Contains(got.Reason, "the digest is another") || got.Restarts != 0 {
			t.Errorf("status: %+v", got)
		}
		w.expectCalls("Create")
		w.backend.Release(backend.TaskCreate)
		w.Pass(backoffUnit)
		w.reconcileUntilStable()
		w.expectCalls("Create", "Start")
	})
	t.Run("the task to start", func(t *testing.T) {
		w := newFixture(t)
		w.backend.Hold(backend.TaskStart)
		w.create(policy(v1alpha1.RestartNever))
		w.reconcileUntilStable()
		w.backend.FailTask(w.uid(), "the port is taken")
		w.reconcileUntilStable()
		w.expect(v1alpha1.PhaseFailed, isFalse, v1alpha1.ReasonBackOff)
		w.backend.Release(backend.TaskStart)
		w.Pass(backoffUnit)
		w.reconcileUntilStable()
		w.expect(v1alpha1.PhaseActive, isFalse, v1alpha1.ReasonGuestBooting)
	})
	t.Run("what the driver refuses is tried again later, since a policy may have refused it", func(t *testing.T) {
		w := newFixture(t)
		w.create(func(vm *v1alpha1.VirtualMachine) { vm.Spec.Image = &v1alpha1.Image{Container: "debian"} })
		for range 3 {
			w.ReconcileOnce()
		}
		w.expect(v1alpha1.PhaseFailed, isFalse, v1alpha1.ReasonInvalidSpec)
		if result := w.ReconcileOnce(); result.RequeueAfter < 10*time.Second {
			t.Errorf("it is tried again after %v", result.RequeueAfter)
		}
	})
	t.Run("a stop", func(t *testing.T) {
		w := newFixture(t)
		w.createReady()
		w.backend.Fail("Stop", broken)
		w.Change(withAction(v1alpha1.ActionStopped))
		if _, err := w.Reconcile(t.Context(), w.Object()); !errors.Is(err, broken) {
			t.Errorf("Reconcile returns %v, so that it is not tried again with backoff", err)
		}
		w.expect(v1alpha1.PhaseFailed, isFalse, v1alpha1.ReasonPowerFailed)
		w.reconcileUntilStable()
		w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonStopped)
	})
}

func TestUnknownIsNeverRecreated(t *testing.T) {
	w := newFixture(t)
	w.createReady()
	w.backend.SetDown(true)
	for range 5 {
		w.Pass(w.ReconcileOnce().RequeueAfter)
	}
	w.expect(v1alpha1.PhaseUnknown, isUnknown, v1alpha1.ReasonBackendUnavailable)
	w.backend.SetDown(false)
	w.backend.Silence(w.uid(), true)
	for range 5 {
		w.Pass(w.ReconcileOnce().RequeueAfter)
	}
	w.expect(v1alpha1.PhaseUnknown, isUnknown, v1alpha1.ReasonBackendUnavailable)
	w.expectCalls()
	w.backend.Silence(w.uid(), false)
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonGuestReady)
	w.expectCalls()
}

func TestServerThatVanishedIsReplaced(t *testing.T) {
	w := newFixture(t)
	w.createReady()
	w.backend.Lose(w.uid())
	w.reconcileUntilStable()
	w.expectCalls("Create", "Start")
	w.expect(v1alpha1.PhaseActive, isFalse, v1alpha1.ReasonGuestBooting)
	if diff := cmp.Diff([]string{"Warning ServerLost"}, w.events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestMissingDriver(t *testing.T) {
	w := newFixture(t)
	w.create(func(vm *v1alpha1.VirtualMachine) { vm.Spec.Driver = "bhyve" })
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseFailed, isFalse, v1alpha1.ReasonDriverMissing)
	if got := w.Object().Status.Reason; !strings.Contains(got, "bhyve") || !strings.Contains(got, "--vm-driver=fake") {
		t.Errorf("the reason does not say what to do: %s", got)
	}
	w.expectCalls()
	w.Delete()
	if !w.IsGone() {
		t.Error("an object of which there can be no server is not deleted at once")
	}
}

func TestDriverThatIsInstalledLater(t *testing.T) {
	w := newFixture(t)
	installed := false
	w.drivers = NewDrivers([]string{fake.Name}, map[string]Opener{fake.Name: func() (Driver, error) {
		if !installed {
			var none *fake.Driver // as a driver's own function returns it
			return none, fmt.Errorf("%w: the engine is not installed", backend.ErrMissing)
		}
		return w.backend, nil
	}}, w.Clock)
	w.Reconciler.drivers = w.drivers
	w.create()
	for range 3 {
		if again := w.ReconcileOnce().RequeueAfter; again != missingDriverInterval {
			t.Errorf("it is looked for it again after %v", again)
		}
		w.expect(v1alpha1.PhaseFailed, isFalse, v1alpha1.ReasonDriverMissing)
	}
	installed = true
	w.Pass(missingDriverInterval)
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isFalse, v1alpha1.ReasonGuestBooting)
}

func TestMissingDriverKeepsWhatItHas(t *testing.T) {
	w := newFixture(t)
	w.createReady()
	vm := w.Object()
	w.drivers = NewDrivers([]string{"other"}, nil, w.Clock)
	w.Reconciler = NewReconciler(kube.NewBase(kind, w.Client, w.Client, w.Recorder, w.Clock), w.drivers)
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseUnknown, isFalse, v1alpha1.ReasonDriverMissing)
	w.Delete()
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseTerminating, isFalse, v1alpha1.ReasonDeleteFailed)
	w.Restart()
	w.reconcileUntilStable()
	if !w.IsGone() || len(w.backend.UIDs()) > 0 {
		t.Errorf("with the driver back, %s is not deleted", vm.UID)
	}
}

func TestReconfigure(t *testing.T) {
	w := newFixture(t)
	w.createReady()
	w.Change(func(vm *v1alpha1.VirtualMachine) {
		vm.Spec.Resource.CPU, vm.Spec.Resource.Memory = resource.MustParse("4"), resource.MustParse("2Gi")
	})
	w.reconcileUntilStable()
	w.expectCalls("Reconfigure")
	condition := meta.FindStatusCondition(w.Object().Status.Conditions, v1alpha1.ConditionRestartRequired)
	if condition.Status != isTrue || !strings.Contains(condition.Message, "resource.cpu") {
		t.Errorf("RestartRequired: %+v", condition)
	}
	w.Change(restartRequestedAt(w.Clock.Now()))
	w.reconcileUntilStable()
	w.expectCalls("Stop", "Start")
	if !meta.IsStatusConditionFalse(w.Object().Status.Conditions, v1alpha1.ConditionRestartRequired) {
		t.Error("a restart is still required after it")
	}
	if machine, _ := w.backend.Machine(w.uid()); machine.MilliCPU != 4000 || machine.MemoryBytes != 2<<30 {
		t.Errorf("the driver was told %+v", machine)
	}
}

func TestUsageIsWrittenWhenItMoved(t *testing.T) {
	w := newFixture(t)
	w.createReady()
	w.backend.SetUsage(w.uid(), 5.4, 14)
	w.reconcileUntilStable()
	if got := w.Wrote(); len(got) > 0 {
		t.Errorf("writes for 4 points: %v", got)
	}
	w.backend.SetUsage(w.uid(), 6, 14)
	w.reconcileUntilStable()
	if diff := cmp.Diff(&v1alpha1.Usage{CPU: 6, Memory: 14}, w.Object().Status.Server.Usage); diff != "" || len(w.Wrote()) != 1 {
		t.Errorf("usage after 5 points (-want +got):\n%s", diff)
	}
}

func TestCloudInit(t *testing.T) {
	w := newFixture(t)
	w.create(func(vm *v1alpha1.VirtualMachine) {
		vm.Spec.CloudInit = &v1alpha1.CloudInit{
			UserDataFrom: &v1alpha1.SecretKey{Name: "seed", Key: "user-data"}, NetworkData: "version: 2",
		}
	})
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseFailed, isFalse, v1alpha1.ReasonSecretMissing)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "seed"},
		StringData: map[string]string{"user-data": "#cloud-config"},
	}
	w.Do(w.Client.Create(t.Context(), secret))
	w.Pass(10 * time.Second)
	w.reconcileUntilStable()
	_, seed := w.backend.Machine(w.uid())
	if diff := cmp.Diff(&backend.Seed{UserData: "#cloud-config", NetworkData: "version: 2"}, seed); diff != "" {
		t.Errorf("seed (-want +got):\n%s", diff)
	}
}

// A Secret whose data the guest could not read holds up the creation until it is corrected. No later start needs it.
func TestSecretOfCloudInit(t *testing.T) {
	w := newFixture(t)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "seed"}, StringData: map[string]string{"user-data": "#cloud-config\n- not a mapping"},
	}
	w.Do(w.Client.Create(t.Context(), secret))
	from := func(name string) change {
		return func(vm *v1alpha1.VirtualMachine) {
			vm.Spec.CloudInit = &v1alpha1.CloudInit{UserDataFrom: &v1alpha1.SecretKey{Name: name, Key: "user-data"}}
		}
	}
	w.create(from("seed"))
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseFailed, isFalse, v1alpha1.ReasonInvalidSpec)
	secret.StringData = map[string]string{"user-data": "#cloud-config\nhostname: a"}
	w.Do(w.Client.Update(t.Context(), secret))
	w.Pass(w.ReconcileOnce().RequeueAfter)
	w.reconcileUntilStable()
	w.backend.Boot(w.uid())
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonGuestReady)

	w.Do(w.Client.Delete(t.Context(), secret))
	restarted := func(synchronized string) {
		t.Helper()
		w.Change(restartRequestedAt(w.Clock.Now()))
		w.reconcileUntilStable()
		w.backend.Boot(w.uid())
		w.reconcileUntilStable()
		w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonGuestReady)
		w.expectSynchronized(synchronized)
		if _, seed := w.backend.Machine(w.uid()); seed == nil || seed.UserData != "#cloud-config\nhostname: a" {
			t.Errorf("the seed is %+v", seed)
		}
		w.Pass(time.Minute)
	}
	restarted("True " + v1alpha1.ReasonSpecApplied)
	w.Change(from("another"))
	w.reconcileUntilStable()
	restarted("False " + v1alpha1.ReasonSecretMissing)
}

// A change that cannot be applied leaves a machine that runs as it is: ready, and in its Service.
func TestChangesThatCannotBeApplied(t *testing.T) {
	for name, test := range map[string]struct {
		err   error
		wants string
	}{
		"the driver refuses it": {&backend.FieldError{Field: "spec.resource.memory", Message: "too small"}, "False " + v1alpha1.ReasonInvalidSpec},
		"it fails":              {errors.New("the disk is full"), "False " + v1alpha1.ReasonChangeFailed},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.createReady()
			w.events()
			w.expectSynchronized("True " + v1alpha1.ReasonSpecApplied)
			w.backend.Fail("Reconfigure", test.err, test.err)
			w.Change(func(vm *v1alpha1.VirtualMachine) { vm.Spec.Resource.Memory = resource.MustParse("64Mi") })
			for range 2 {
				_, _ = w.Reconcile(t.Context(), w.Object()) // its error is that of the driver
				w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonGuestReady)
				w.expectSynchronized(test.wants)
			}
			if diff := cmp.Diff([]string{"Warning " + strings.TrimPrefix(test.wants, "False ")}, w.events()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			w.Pass(time.Minute)
			w.reconcileUntilStable()
			w.expectSynchronized("True " + v1alpha1.ReasonSpecApplied)
		})
	}
}

func (w *fixture) expectSynchronized(want string) {
	w.Helper()
	is := meta.FindStatusCondition(w.Object().Status.Conditions, v1alpha1.ConditionSynchronized)
	if got := fmt.Sprintf("%s %s", is.Status, is.Reason); got != want {
		w.Errorf("Synchronized is %s: %s, want %s", got, is.Message, want)
	}
}
