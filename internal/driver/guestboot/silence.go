package guestboot

import "time"

const (
	// MaxResets is how often a silent guest is reset after it was powered on.
	MaxResets = 3
	// A silent guest is given that many times what it usually needs to boot, within these limits. Each reset doubles that: a guest that
	// is only slow has a chance.
	patience                  = 10
	leastSilence, mostSilence = 30 * time.Second, 10 * time.Minute
)

// Boot is what is known of a guest that was powered on or reset.
type Boot struct {
	// Usual is how long the guest has needed to boot before. 0 means that it is not known whether it ever says anything.
	Usual time.Duration
	// Ran is how long it has run since, without the time in which it was paused or halted.
	Ran time.Duration
	// Spoke means that it has said something since, on its serial console or through its agent.
	Spoke bool
	// Resets is how often it was reset since it was powered on, because it was silent.
	Resets int
}

// Decision is what to do about a guest that boots.
type Decision int

// The decisions.
const (
	// Wait: it still has time.
	Wait Decision = iota
	// Leave: it has spoken, or it may be silent for ever.
	Leave
	// Reset: it probably hangs.
	Reset
	// GiveUp: resets do not help.
	GiveUp
)

// Limit is how long the guest may be silent.
func (b *Boot) Limit() time.Duration {
	return min(max(patience*b.Usual, leastSilence), mostSilence) << min(b.Resets, MaxResets)
}

// Decide returns what to do about a guest that boots.
func Decide(b Boot) Decision {
	switch {
	case b.Spoke, b.Usual <= 0:
		return Leave
	case b.Ran < b.Limit():
		return Wait
	case b.Resets < MaxResets:
		return Reset
	}
	return GiveUp
}
