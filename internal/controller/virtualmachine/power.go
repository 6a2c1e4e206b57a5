package virtualmachine

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/cron"
)

// bySchedule is the field of the spec that wants a machine to sleep on a schedule.
const bySchedule = "spec.powerSchedule"

// power is the power state that a machine should have.
type power struct {
	wanted v1alpha1.Action
	// by is the field of the spec that wants it.
	by string
	// nextWake and nextSleep are the next times of spec.powerSchedule; zero if there are none.
	nextWake, nextSleep time.Time
	// change is when power has to be computed again; zero means never.
	change time.Time
	// invalid is a mistake in spec.powerSchedule, which is ignored then.
	invalid *backend.FieldError
}

// powerOf returns the power state that vm should have. spec.action comes first. While it is active, the last time of
// spec.powerSchedule decides, unless it is suspended. It needs no record of what was done at which time: a manager that was away
// does what the last time says. spec.wokenAt, and the creation of vm, are like a time to wake.
func powerOf(vm *v1alpha1.VirtualMachine, now time.Time) power {
	p := power{wanted: vm.Spec.Action, by: "spec.action"}
	if vm.Spec.PowerSchedule == nil {
		return p
	}
	wake, sleep, mistakes := powerPlans(vm)
	if len(mistakes) > 0 {
		p.invalid = &backend.FieldError{Field: mistakes[0].Field, Message: mistakes[0].Detail}
		return p
	}
	if vm.Spec.PowerSchedule.Suspend {
		return p
	}
	p.nextWake, _ = wake.Next(now)
	p.nextSleep, _ = sleep.Next(now)
	p.change = soonest(p.nextWake, p.nextSleep)
	awake := vm.CreationTimestamp.Time
	if last, ok := wake.Prev(now.Add(time.Nanosecond)); ok && last.After(awake) {
		awake = last
	}
	switch woken := ptr.Deref(vm.Spec.WokenAt, metav1.Time{}).Time; {
	case woken.After(now):
		p.change = soonest(p.change, woken)
	case woken.After(awake):
		awake = woken
	}
	if last, ok := sleep.Prev(now.Add(time.Nanosecond)); ok && last.After(awake) && p.wanted == v1alpha1.ActionActive {
		p.wanted, p.by = v1alpha1.ActionAsleep, bySchedule
	}
	return p
}

// soonest returns the earlier of two times. The zero time does not count.
func soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// whenAwake describes when a machine that is to sleep is to be on again.
func (p *power) whenAwake() string {
	switch {
	case p.by != bySchedule:
		return "when spec.action is active"
	case p.nextWake.IsZero():
		return "when spec.wokenAt is set to the current time"
	}
	return "at " + timestamp(p.nextWake)
}

// powerEvent is an event of a machine with spec.powerSchedule.
type powerEvent struct{ reason, action, message string }

// powerEventOf returns the event of a plan that was carried out and puts a machine to sleep on its schedule, or wakes one that its
// schedule will put to sleep again; nil if it does neither. It says when the opposite is due.
func powerEventOf(observed observation, p plan, f failure) *powerEvent {
	switch {
	case f != noFailure:
	case p.action == sleep && p.power.by == bySchedule:
		return &powerEvent{v1alpha1.ReasonFallingAsleep, "SleepServer", "The machine is put to sleep, as requested by " + bySchedule + ". It wakes " + p.power.whenAwake()}
	case p.action == start && observed.server.State == backend.StateAsleep && !p.power.nextSleep.IsZero():
		return &powerEvent{v1alpha1.ReasonStarting, "WakeServer", "The machine wakes. " + bySchedule + " puts it to sleep again at " + timestamp(p.power.nextSleep)}
	}
	return nil
}

// summarizeSchedule records the next times of spec.powerSchedule.
func summarizeSchedule(p power, status *v1alpha1.VirtualMachineStatus) {
	status.PowerSchedule = nil
	if p.nextWake.IsZero() && p.nextSleep.IsZero() {
		return
	}
	status.PowerSchedule = &v1alpha1.PowerScheduleStatus{NextWakeTime: optionalTime(p.nextWake), NextSleepTime: optionalTime(p.nextSleep)}
}

// optionalTime returns a time for a status; nil if it is zero.
func optionalTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t.UTC()}
}

// powerPlans returns the times of spec.powerSchedule, and its mistakes.
func powerPlans(vm *v1alpha1.VirtualMachine) (wake, sleep *cron.Plan, mistakes field.ErrorList) {
	spec, path := vm.Spec.PowerSchedule, field.NewPath("spec", "powerSchedule")
	location, err := cron.LoadLocation(spec.TimeZone)
	if err != nil {
		mistakes = append(mistakes, field.Invalid(path.Child("timeZone"), spec.TimeZone, err.Error()))
	}
	parse := func(name, text string) *cron.Plan {
		options := cron.Options{Location: location, Anchor: vm.CreationTimestamp.Time}
		if text != "" {
			schedule, err := cron.Parse(text, vm.Namespace+"/"+vm.Name)
			if err != nil {
				mistakes = append(mistakes, field.Invalid(path.Child(name), text, cron.Detail(err, text)))
				return nil
			}
			options.Schedules = append(options.Schedules, schedule)
		}
		plan, err := cron.New(options)
		if err != nil {
			mistakes = append(mistakes, field.Invalid(path.Child(name), text, err.Error()))
		}
		return plan
	}
	return parse("wake", spec.Wake), parse("sleep", spec.Sleep), mistakes
}
