package owner

// Phase is what a machine does. Together with what is observed and wanted, it is all that a decision depends on.
type Phase string

// The phases.
const (
	// Off: there is no QEMU.
	Off Phase = ""
	// Starting: QEMU starts, and the guest has not run yet.
	Starting Phase = "Starting"
	// Loading: QEMU loads the saved memory, which the guest has not used yet.
	Loading Phase = "Loading"
	// Running: the guest runs.
	Running Phase = "Running"
	// Paused: the guest does not run, as wanted.
	Paused Phase = "Paused"
	// Full: the guest does not run, because a volume of its disks is full.
	Full Phase = "Full"
	// Copying: the guest does not run, because a snapshot gets its memory.
	Copying Phase = "Copying"
	// Saving: the guest does not run, because its memory is being saved.
	Saving Phase = "Saving"
	// Asleep: the memory is saved. QEMU ends, or has ended.
	Asleep Phase = "Asleep"
	// Ended: the guest has ended without saved memory. QEMU ends, or has ended.
	Ended Phase = "Ended"
)

// Status is what QEMU says about the guest.
type Status string

// The statuses.
const (
	// Silent: QEMU has not answered yet.
	Silent Status = ""
	// Waiting: it waits for the command to run the guest.
	Waiting Status = "waiting"
	// Incoming: it waits for memory, or loads it.
	Incoming Status = "incoming"
	// Runs: the guest runs.
	Runs Status = "runs"
	// Stands: the guest does not run.
	Stands Status = "stands"
	// NoSpace: the guest does not run, because QEMU could not write to a disk.
	NoSpace Status = "no space"
	// Over: the guest has powered itself off, or has crashed.
	Over Status = "over"
	// Gone: QEMU has ended.
	Gone Status = "gone"
)

// Result is the result of the work of a phase: to load, copy or save memory.
type Result string

// The results.
const (
	// NoWork: there is none.
	NoWork Result = ""
	// Pending: it has not ended.
	Pending Result = "pending"
	// Done: it has succeeded.
	Done Result = "done"
	// Failed: it has failed, and may succeed later.
	Failed Result = "failed"
	// Unusable: the memory can never be used.
	Unusable Result = "unusable"
)

// Observed is what the owner sees.
type Observed struct {
	QEMU Status
	Work Result
	// Due means that a periodic check is due, and Room that there is room on the volumes that were full.
	Due, Room bool
	// Press means that it is time to press the power button.
	Press bool
	// Unnamed means that the guest goes on with the memory of another machine, and will not become this one.
	Unnamed bool
}

// Power is whether a machine is to run.
type Power string

// The values of Power.
const (
	On       Power = "on"
	Pause    Power = "paused"
	PowerOff Power = "off"
)

// Wanted is what others want of a machine.
type Wanted struct {
	Power Power
	// Work is Saving or Copying if somebody waits to do that; otherwise, it is empty.
	Work Phase
}

// Action is what the owner does on the way to a phase.
type Action string

// The actions.
const (
	Nothing Action = ""
	// Continue lets the guest run, and Halt stops it.
	Continue Action = "continue"
	Halt     Action = "halt"
	// Press presses the power button.
	Press Action = "press the power button"
	// Interrupt ends the work, so that the guest can run and power itself off.
	Interrupt Action = "interrupt"
	// Quit ends QEMU.
	Quit Action = "quit"
)

// Next returns the next phase of a machine, which is recorded first, and the action on the way to it. It is called again until nothing
// changes, and whenever something else is observed or wanted. It is the only place that decides.
func Next(phase Phase, seen Observed, wanted Wanted) (Phase, Action) {
	switch phase {
	case Starting, Loading:
		return start(phase, seen)
	case Copying, Saving:
		return work(phase, seen, wanted)
	case Asleep, Ended:
		if seen.QEMU != Gone && seen.QEMU != Silent {
			return phase, Quit
		}
	case Running, Paused, Full:
		return on(phase, seen, wanted)
	}
	return phase, Nothing
}

// start is Next before the guest runs. Saved memory that it has not used yet is still there if that fails.
func start(phase Phase, seen Observed) (Phase, Action) {
	failed := Ended
	if phase == Loading {
		failed = Asleep
	}
	switch {
	case seen.Work == Pending:
		return phase, Nothing // it notices that QEMU has ended
	case seen.Work == Unusable:
		return Ended, Quit
	case seen.Work == Failed:
		return failed, Quit
	case seen.QEMU == Gone:
		return failed, Nothing
	case seen.Work == Done, seen.QEMU == Waiting && phase == Starting:
		return Running, Continue
	case seen.QEMU == Incoming, seen.QEMU == Waiting:
		return failed, Quit // nobody gives it the memory
	case seen.QEMU == Silent:
		return phase, Nothing
	}
	return Running, Nothing
}

// work is Next while the memory is being copied or saved. What QEMU says meanwhile does not count.
func work(phase Phase, seen Observed, wanted Wanted) (Phase, Action) {
	switch {
	case seen.Work == Pending && phase == Copying && wanted.Power == PowerOff:
		return phase, Interrupt
	case seen.Work == Pending:
		return phase, Nothing
	case seen.Work == Done && phase == Saving:
		return Asleep, Nothing
	}
	wanted.Work = ""
	return on(Running, seen, wanted)
}

// on is Next for a machine that is on.
func on(phase Phase, seen Observed, wanted Wanted) (Phase, Action) {
	switch seen.QEMU {
	case Gone:
		return Ended, Nothing
	case Over:
		return Ended, Quit
	case Silent, Waiting, Incoming:
		return phase, Nothing
	case NoSpace:
		return full(seen, wanted)
	}
	runs := seen.QEMU == Runs
	switch {
	case runs && seen.Unnamed:
		return Ended, Quit
	case wanted.Work != "":
		return wanted.Work, Nothing
	case wanted.Power == PowerOff && !runs:
		return Ended, Quit // the guest would not notice the button
	case wanted.Power == PowerOff && seen.Press:
		return Running, Press
	case wanted.Power == Pause && runs:
		return Paused, Halt
	case wanted.Power == Pause:
		return Paused, Nothing
	case !runs:
		return Running, Continue
	case phase == Full && !seen.Due: // it may only have tried
		return Full, Nothing
	}
	return Running, Nothing
}

// full is Next for a machine that a full volume has halted. It runs when there is room, also to power itself off.
func full(seen Observed, wanted Wanted) (Phase, Action) {
	switch {
	case wanted.Power == Pause:
		return Paused, Nothing
	case seen.Due && seen.Room:
		return Full, Continue
	case wanted.Power == PowerOff && seen.Press:
		return Full, Press
	}
	return Full, Nothing
}
