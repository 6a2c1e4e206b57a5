package virtualmachine

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/cron"
	"github.com/keelson-dev/keelson/internal/kube"
)

// bySchedule is the field of the spec that wants a machine to sleep on a schedule.
const bySchedule = "spec.powerSchedule"

// byIdle is the field that wants an idle machine to sleep.
const byIdle = "spec.idle"

// power is the power state that a machine should have.
type power struct {
	wanted v1alpha1.Action
	// by is the field of the spec that wants it.
	by string
	// sleep are the options of a machine that should be asleep.
	sleep backend.SleepOptions
	// nextWake and nextSleep are the next times of spec.powerSchedule; zero if there are none.
	nextWake, nextSleep time.Time
	// change is when power has to be computed again; zero means never.
	change time.Time
	// invalid is a mistake in spec.powerSchedule, which is ignored then.
	invalid *backend.FieldError
}

// powerOf returns the power state that vm should have, whose server is nil if there is none. spec.action comes first. While it is
// active, the last time of spec.powerSchedule decides, unless it is suspended. It needs no record of what was done at which time: a
// manager that was away does what the last time says. spec.wakeRequestedAt, and the creation of vm, are like a time to wake. A machine that
// would be active then sleeps if spec.idle wants it to.
func powerOf(vm *v1alpha1.VirtualMachine, server *backend.Server, now time.Time) power {
	p := power{wanted: vm.Spec.Action, by: "spec.action"}
	awake := vm.CreationTimestamp.Time
	switch woken := ptr.Deref(vm.Spec.WakeRequestedAt, metav1.Time{}).Time; {
	case vm.Spec.PowerSchedule == nil && vm.Spec.Idle == nil:
		return p
	case woken.After(now):
		p.change = woken
	case woken.After(awake):
		awake = woken
	}
	if vm.Spec.PowerSchedule != nil {
		awake = p.followSchedule(vm, awake, now)
	}
	if vm.Spec.Idle != nil && server != nil && p.wanted == v1alpha1.ActionActive {
		p.sleepIfIdle(vm.Spec.Idle, server, awake, now)
	}
	return p
}

// followSchedule applies spec.powerSchedule to a machine that was last to be awake at that time, and returns when it was with the
// schedule.
func (p *power) followSchedule(vm *v1alpha1.VirtualMachine, awake, now time.Time) time.Time {
	wake, sleep, mistakes := powerPlans(vm)
	if len(mistakes) > 0 {
		p.invalid = &backend.FieldError{Field: mistakes[0].Field, Message: mistakes[0].Detail}
		return awake
	}
	if vm.Spec.PowerSchedule.Suspend {
		return awake
	}
	p.nextWake, _ = wake.Next(now)
	p.nextSleep, _ = sleep.Next(now)
	p.change = kube.Earlier(p.change, kube.Earlier(p.nextWake, p.nextSleep))
	if last, ok := wake.Prev(now.Add(time.Nanosecond)); ok && last.After(awake) {
		awake = last
	}
	if last, ok := sleep.Prev(now.Add(time.Nanosecond)); ok && last.After(awake) && p.wanted == v1alpha1.ActionActive {
		p.wanted, p.by = v1alpha1.ActionAsleep, bySchedule
	}
	return awake
}

// sleepIfIdle applies spec.idle to a machine that was last to be awake at that time.
func (p *power) sleepIfIdle(idle *v1alpha1.VirtualMachineIdle, server *backend.Server, awake, now time.Time) {
	wakes := ptr.Deref(idle.WakeOnConnection, true)
	switch asleep := server.Asleep; {
	case asleep != nil:
		// spec.wakeRequestedAt has whole seconds.
		isWoken := asleep.Wanted && wakes || !awake.Before(asleep.Since.Truncate(time.Second))
		if !asleep.Idle || isWoken {
			return
		}
	case server.State != backend.StateRunning && server.Task != backend.TaskSleep, server.LastActive.IsZero():
		return
	default:
		last := server.LastActive
		if awake.After(last) {
			last = awake
		}
		if due := last.Add(idle.SleepAfter.Duration); due.After(now) {
			p.change = kube.Earlier(p.change, due)
			return
		}
	}
	p.wanted, p.by = v1alpha1.ActionAsleep, byIdle
	p.sleep = backend.SleepOptions{Idle: true, WakeOnConnection: wakes}
}

// whenAwake describes when a machine that is to sleep is to be on again.
func (p *power) whenAwake() string {
	switch {
	case p.by == byIdle && p.sleep.WakeOnConnection:
		return "when someone connects to it, or when spec.wakeRequestedAt is set to the current time"
	case p.by == byIdle:
		return "when spec.wakeRequestedAt is set to the current time"
	case p.by != bySchedule:
		return "when spec.action is active"
	case p.nextWake.IsZero():
		return "when spec.wakeRequestedAt is set to the current time"
	}
	return "at " + timestamp(p.nextWake)
}

// powerEvent is an event of a machine with spec.powerSchedule or spec.idle.
type powerEvent struct{ reason, action, message string }

// powerEventOf returns the event of a plan that was carried out and puts a machine to sleep on its schedule or because it is idle, or
// wakes such a one; nil if it does neither. It says when the opposite is due.
func powerEventOf(observed observation, p plan, f failure) *powerEvent {
	switch server := observed.server; {
	case f != noFailure:
	case p.action == sleep && server.IsOn() && (p.power.by == bySchedule || p.power.by == byIdle):
		return &powerEvent{v1alpha1.ReasonFallingAsleep, "SleepServer", "The machine is put to sleep, as requested by " + p.power.by + ". It wakes " + p.power.whenAwake()}
	case p.action == start && server.Asleep != nil && server.Asleep.Wanted:
		return &powerEvent{v1alpha1.ReasonClientConnected, "WakeServer", "Someone has connected to the machine that was idle, and it wakes"}
	case p.action == start && server.State == backend.StateAsleep && !p.power.nextSleep.IsZero():
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
	location, err := cron.LoadLocation(string(spec.TimeZone))
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

// decideBlocked returns the action for a server whose start waits for something. It is stopped if it is not to start, or not like that: one that
// can be scheduled nowhere may need a smaller size. The memory of one that is waking is only discarded on request.
func (p *plan) decideBlocked(vm *v1alpha1.VirtualMachine, server *backend.Server) action {
	pending := vm.Status.PendingRestart
	switch {
	case p.power.wanted == v1alpha1.ActionStopped:
		return stop
	case server.Blocked.Waking:
	case pending == nil && isRestartDue(vm, p.now):
		return recordRestart
	case p.power.wanted == v1alpha1.ActionAsleep, pending != nil && pending.Run == server.Run, server.Hash != hash(&vm.Spec):
		return stop
	}
	return wait
}
