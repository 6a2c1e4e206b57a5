package virtualmachine

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	commonv1 "github.com/keelson-dev/keelson/api/common/v1"
	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

func scheduled(wake, sleep, zone string) change {
	return func(vm *v1alpha1.VirtualMachine) {
		vm.Spec.PowerSchedule = &v1alpha1.PowerSchedule{Wake: wake, Sleep: sleep, TimeZone: commonv1.TimeZone(zone)}
	}
}

// working is a schedule of working days.
func working(vm *v1alpha1.VirtualMachine) { scheduled("0 8 * * MON-FRI", "0 19 * * *", "")(vm) }

func suspended(vm *v1alpha1.VirtualMachine) { vm.Spec.PowerSchedule.Suspend = true }

func woken(at time.Time) change {
	return func(vm *v1alpha1.VirtualMachine) { vm.Spec.WakeRequestedAt = ptr.To(metav1.NewTime(at)) }
}

func createdAt(at time.Time) change {
	return func(vm *v1alpha1.VirtualMachine) { vm.CreationTimestamp = metav1.NewTime(at) }
}

func TestPowerOf(t *testing.T) {
	const active, asleep = v1alpha1.ActionActive, v1alpha1.ActionAsleep
	at := func(text string) time.Time {
		parsed, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	wednesday := func(clock string) time.Time { return at("2026-03-04T" + clock + "Z") }
	never := "" // no change is due
	for _, test := range []struct {
		name   string
		now    time.Time
		vm     *v1alpha1.VirtualMachine
		want   v1alpha1.Action
		change string
	}{
		{"no schedule", noon, newVM(), active, never},
		{"before it wakes", wednesday("07:59:59"), newVM(working), asleep, "2026-03-04T08:00:00Z"},
		{"it wakes", wednesday("08:00:00"), newVM(working), active, "2026-03-04T19:00:00Z"},
		{"before it sleeps", wednesday("18:59:59"), newVM(working), active, "2026-03-04T19:00:00Z"},
		{"it sleeps", wednesday("19:00:00"), newVM(working), asleep, "2026-03-05T08:00:00Z"},
		{"asleep at the weekend", at("2026-03-07T12:00:00Z"), newVM(working), asleep, "2026-03-07T19:00:00Z"},
		{"spec.action comes first", noon, newVM(working, withAction(asleep)), asleep, "2026-03-04T19:00:00Z"},
		{"spec.action comes first at night, too", wednesday("23:00:00"), newVM(working, withAction("stopped")), "stopped", "2026-03-05T08:00:00Z"},
		{"woken in the night", wednesday("20:00:00"), newVM(working, woken(wednesday("19:30:00"))), active, "2026-03-05T08:00:00Z"},
		{"woken in the night, and the next time to sleep has passed", at("2026-03-05T19:00:00Z"), newVM(working, woken(wednesday("19:30:00"))), asleep, "2026-03-06T08:00:00Z"},
		{"woken in the second in which it slept", wednesday("19:00:00"), newVM(working, woken(wednesday("19:00:00"))), active, "2026-03-05T08:00:00Z"},
		{"to be woken later", wednesday("20:00:00"), newVM(working, woken(wednesday("21:00:00"))), asleep, "2026-03-04T21:00:00Z"},
		{"created in the night", wednesday("20:00:00"), newVM(working, createdAt(wednesday("19:30:00"))), active, "2026-03-05T08:00:00Z"},
		{"created before", wednesday("20:00:00"), newVM(working, createdAt(wednesday("18:30:00"))), asleep, "2026-03-05T08:00:00Z"},
		{"both at one time", wednesday("12:00:00"), newVM(scheduled("0 12 * * *", "0 12 * * *", "")), active, "2026-03-05T12:00:00Z"},
		{"it only sleeps", wednesday("20:00:00"), newVM(scheduled("", "0 19 * * *", "")), asleep, "2026-03-05T19:00:00Z"},
		{"it only wakes", wednesday("07:00:00"), newVM(scheduled("0 8 * * *", "", "")), active, "2026-03-04T08:00:00Z"},
		{"a time zone", wednesday("07:00:00"), newVM(scheduled("0 8 * * *", "0 19 * * *", "Europe/Berlin")), active, "2026-03-04T18:00:00Z"},
		// On 29 March, the clocks of Berlin go from 2:00 to 3:00, which is 1:00 UTC.
		{"a time to wake that does not exist: before it", at("2026-03-29T00:59:59Z"), newVM(scheduled("30 2 * * *", "0 19 * * *", "Europe/Berlin")), asleep, "2026-03-29T01:00:00Z"},
		{"a time to wake that does not exist", at("2026-03-29T01:00:00Z"), newVM(scheduled("30 2 * * *", "0 19 * * *", "Europe/Berlin")), active, "2026-03-29T17:00:00Z"},
		{"a time to wake that does not exist, on the day before", at("2026-03-28T01:30:00Z"), newVM(scheduled("30 2 * * *", "0 19 * * *", "Europe/Berlin")), active, "2026-03-28T18:00:00Z"},
		{"a time to sleep that does not exist: before it", at("2026-03-29T00:59:59Z"), newVM(scheduled("0 0 * * *", "30 2 * * *", "Europe/Berlin")), active, "2026-03-29T01:00:00Z"},
		{"a time to sleep that does not exist", at("2026-03-29T01:00:00Z"), newVM(scheduled("0 0 * * *", "30 2 * * *", "Europe/Berlin")), asleep, "2026-03-29T22:00:00Z"},
		{"times to wake and to sleep that do not exist become one", at("2026-03-29T01:00:00Z"), newVM(scheduled("45 2 * * *", "15 2 * * *", "Europe/Berlin")), active, "2026-03-30T00:15:00Z"},
		// On 25 October, they go from 3:00 back to 2:00, which is 1:00 UTC. 2:30 is at 0:30 and at 1:30 UTC.
		{"a time to sleep that is there twice: the first", at("2026-10-25T00:30:00Z"), newVM(scheduled("45 2 * * *", "30 2 * * *", "Europe/Berlin")), asleep, "2026-10-25T00:45:00Z"},
		{"a time to sleep that is there twice: the second is none", at("2026-10-25T01:30:00Z"), newVM(scheduled("45 2 * * *", "30 2 * * *", "Europe/Berlin")), active, "2026-10-26T01:30:00Z"},
		{"the night in which the clocks go back is an hour longer", at("2026-10-25T06:59:59Z"), newVM(scheduled("0 8 * * *", "0 19 * * *", "Europe/Berlin")), asleep, "2026-10-25T07:00:00Z"},
		{"suspended", wednesday("20:00:00"), newVM(working, suspended), active, never},
		{"suspended, and spec.action", noon, newVM(working, suspended, withAction(asleep)), asleep, never},
		{"suspended, with a mistake", noon, newVM(scheduled("0 8 * *", "", ""), suspended), active, never},
		{"created when it sleeps", wednesday("19:00:00"), newVM(working, createdAt(wednesday("19:00:00"))), active, "2026-03-05T08:00:00Z"},
		{"created when it would sleep, before it first wakes", wednesday("07:00:00"), newVM(working, createdAt(wednesday("07:00:00"))), active, "2026-03-04T08:00:00Z"},
		{"a mistake", wednesday("20:00:00"), newVM(scheduled("0 8 * *", "0 19 * * *", "")), active, never},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := powerOf(test.vm, nil, test.now)
			change := never
			if !got.change.IsZero() {
				change = timestamp(got.change)
			}
			if got.wanted != test.want || change != test.change {
				t.Errorf("wanted is %s until %s, want %s until %s", got.wanted, change, test.want, test.change)
			}
		})
	}
}

// A machine follows its schedule, also while no manager runs, and a person can wake it in between.
func TestPowerSchedule(t *testing.T) {
	w := newFixture(t)
	w.Clock.SetTime(time.Now().UTC().Truncate(24 * time.Hour).Add(60 * time.Hour)) // at noon, after the creation by the clock of the API server
	day := w.Clock.Now().Truncate(24 * time.Hour)
	clock := func(days, hours int) {
		w.Clock.SetTime(day.Add(time.Duration(days)*24*time.Hour + time.Duration(hours)*time.Hour))
	}
	w.createReady(scheduled("0 8 * * *", "0 19 * * *", ""))
	expectTimes := func(wake, sleep time.Time) {
		t.Helper()
		got := w.Object().Status.PowerSchedule
		if got == nil || !got.NextWakeTime.Time.Equal(wake) || !got.NextSleepTime.Time.Equal(sleep) {
			t.Errorf("the next times are %+v, want %v and %v", got, wake, sleep)
		}
	}
	at := func(days, hours int) time.Time {
		return day.Add(time.Duration(days)*24*time.Hour + time.Duration(hours)*time.Hour)
	}
	expectTimes(at(1, 8), at(0, 19))
	if result := w.ReconcileOnce(); result.RequeueAfter <= 0 || result.RequeueAfter > 7*time.Hour {
		t.Errorf("it is requeued after %v, want 7 h at most", result.RequeueAfter)
	}

	clock(0, 19)
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonAsleep)
	w.expectCalls("Sleep")
	if got, want := w.Object().Status.Reason, "The machine is asleep, as requested by spec.powerSchedule. It wakes at "+timestamp(at(1, 8)); got != want {
		t.Errorf("the reason is %q, want %q", got, want)
	}
	expectTimes(at(1, 8), at(1, 19))

	clock(0, 22)
	w.Change(woken(w.Clock.Now()))
	w.reconcileUntilStable()
	w.backend.Boot(w.uid())
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonGuestReady)
	clock(1, 8)
	w.reconcileUntilStable()
	w.expectCalls("Start")
	if got, want := strings.Join(w.events(), ", "), "Normal FallingAsleep, Normal Starting"; got != want {
		t.Errorf("events are %q, want %q", got, want)
	}

	// Several times were missed: the last one counts, once.
	clock(3, 20)
	w.Restart()
	w.reconcileUntilStable()
	w.expectCalls("Sleep")
	clock(5, 12)
	w.Restart()
	w.reconcileUntilStable()
	w.expectCalls("Start")

	// While its schedule is suspended, it does not sleep. If it is asleep then, it wakes.
	w.Change(suspended)
	clock(5, 20)
	w.reconcileUntilStable()
	w.expectCalls()
	if got := w.Object().Status.PowerSchedule; got != nil {
		t.Errorf("the next times of a suspended schedule are %+v", got)
	}
	w.Change(scheduled("0 8 * * *", "0 19 * * *", ""))
	w.reconcileUntilStable()
	w.expectCalls("Sleep")
	w.Change(suspended)
	w.reconcileUntilStable()
	w.expectCalls("Start")
	w.Change(scheduled("0 8 * * *", "0 19 * * *", ""))
	w.reconcileUntilStable()
	w.expectCalls("Sleep")
	clock(6, 9)
	w.reconcileUntilStable()
	w.expectCalls("Start")
	w.events()

	// A machine that is to be asleep or off is not woken.
	w.Change(withAction(v1alpha1.ActionAsleep))
	w.reconcileUntilStable()
	clock(7, 12)
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonAsleep)
	w.expectCalls("Sleep")
	if len(w.events()) > 0 || w.Object().Status.Restarts != 0 {
		t.Errorf("a schedule counts as %d restarts", w.Object().Status.Restarts)
	}
}

// A mistake in the schedule is reported, and the machine runs.
func TestInvalidPowerSchedule(t *testing.T) {
	w := newFixture(t)
	w.create(scheduled("0 8 * * *", "0 25 * * *", "Mars"))
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isFalse, v1alpha1.ReasonGuestBooting)
	w.expectSynchronized("False " + v1alpha1.ReasonInvalidSpec)
	if is := meta.FindStatusCondition(w.Object().Status.Conditions, v1alpha1.ConditionSynchronized); !strings.Contains(is.Message, "spec.powerSchedule.timeZone") {
		t.Errorf("the message is %q", is.Message)
	}
	w.expectCalls("Create", "Start")
	w.Change(scheduled("0 8 * * *", "", ""))
	w.reconcileUntilStable()
	w.backend.Boot(w.uid())
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonGuestReady)
	if got := w.Object().Status.PowerSchedule; got == nil || got.NextSleepTime != nil || got.NextWakeTime == nil {
		t.Errorf("the next times are %+v", got)
	}
}

// Every mistake of a schedule is rejected, at its field.
func TestPowerScheduleIsValidated(t *testing.T) {
	validate := NewValidator([]string{"any"}, map[string]Rule{"any": func(*backend.Machine) error { return nil }})
	var got []string
	for _, mistake := range validate(newVM(scheduled("0 8 * *", "61 * * * *", "Europe/Nowhere"), func(vm *v1alpha1.VirtualMachine) { vm.Spec.Driver = "any" })) {
		got = append(got, mistake.Field)
	}
	if want := "spec.powerSchedule.timeZone spec.powerSchedule.wake spec.powerSchedule.sleep"; strings.Join(got, " ") != want {
		t.Errorf("the mistakes are in %q, want %q", got, want)
	}
	if all := validate(newVM(working, func(vm *v1alpha1.VirtualMachine) { vm.Spec.Driver = "any" })); len(all) > 0 {
		t.Errorf("a schedule without mistakes: %v", all)
	}
}
