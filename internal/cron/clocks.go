package cron

import "time"

// Clocks says how a run relates to a change of the clocks.
type Clocks string

const (
	// ClocksSteady is a run whose wall time occurs once.
	ClocksSteady Clocks = ""
	// ClocksSkipped is a run right after a gap: the wall time of its schedule was skipped.
	ClocksSkipped Clocks = "Skipped"
	// ClocksFirst is a run at the first occurrence of a wall time that occurs twice.
	ClocksFirst Clocks = "First"
	// ClocksSecond is a run at the second occurrence of a wall time that occurs twice.
	ClocksSecond Clocks = "Second"
)

// ClocksAt returns how a run of the plan relates to a change of the clocks.
func (p *Plan) ClocksAt(run time.Time) Clocks {
	instant := run.Unix()
	here := stretchAt(p.location, instant)
	if instant < here.from+here.repeated {
		return ClocksSecond
	}
	if next := stretchAt(p.location, here.to); instant >= here.to-next.repeated {
		return ClocksFirst
	}
	if instant != here.from || here.gap == 0 {
		return ClocksSteady
	}
	caughtUp := false
	for _, s := range p.schedules {
		if s.every > 0 && floorRest(instant-p.anchor, s.every) == 0 || s.every == 0 && s.matches(instant+here.offset) {
			return ClocksSteady
		}
		caughtUp = caughtUp || p.isFixed(s) && s.caughtUp(here)
	}
	if caughtUp {
		return ClocksSkipped
	}
	return ClocksSteady
}

// ClockChanges returns when the clocks of the plan's zone go forward or back in [from, to).
func (p *Plan) ClockChanges(from, to time.Time) []time.Time {
	var changes []time.Time
	for instant := stretchAt(p.location, from.Unix()-1).to; instant < to.Unix(); {
		here := stretchAt(p.location, instant)
		if here.from == instant && here.gap+here.repeated > 0 {
			changes = append(changes, time.Unix(instant, 0).In(p.location))
		}
		instant = here.to
	}
	return changes
}

func floorRest(a, b int64) int64 {
	_, rest := floorDiv(a, b)
	return rest
}
