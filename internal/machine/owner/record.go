package owner

import (
	"time"

	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
)

// Record is the state of a machine. It is made durable before each effect that it describes, so that whoever owns the machine next decides
// as this owner would have.
type Record struct {
	Phase Phase `json:"phase,omitempty"`
	// Owed is what the guest has to be told.
	Owed Owed `json:"owed,omitzero"`
	// Boot is the boot of the guest, until it has booted; nil if it goes on with saved memory.
	Boot *Boot `json:"boot,omitempty"`
	// BootTime is the longest time that the guest has needed to boot, since it was last silent. 0 means that it is not known.
	BootTime time.Duration `json:"bootTime,omitempty"`
	// Ended is how the guest has ended, if it has: otherwise, the end of QEMU is that of the guest.
	Ended *End `json:"ended,omitempty"`
	// Memory is the saved memory in Asleep. The store keeps it, with what else it needs to load that.
	Memory *savedmemory.Memory `json:"-"`
}

// Owed is what the guest has to be told by its agent before anything else.
type Owed struct {
	// Thaw means that its file systems may be frozen for a snapshot.
	Thaw bool `json:"thaw,omitempty"`
	// Clock means that its clock stood still: while the machine was asleep, or since its template was made.
	Clock bool `json:"clock,omitempty"`
	// Start means that it was started from a template, and does not know yet that it is a machine.
	Start bool `json:"start,omitempty"`
	// Name means that it goes on with the memory of another machine, and does not know yet that it is this one. Its network is off.
	Name bool `json:"name,omitempty"`
}

// Boot is a boot whose guest may not have said anything yet.
type Boot struct {
	// LogBytes is the size of the serial log at its beginning.
	LogBytes int64 `json:"logBytes,omitempty"`
	Silence
}

// Silence describes a guest that was reset because it had said nothing.
type Silence struct {
	// Resets is how often, and After how long it may be silent before that.
	Resets int           `json:"resets,omitempty"`
	After  time.Duration `json:"after,omitempty"`
	// GaveUp means that it is not reset again.
	GaveUp bool `json:"gaveUp,omitempty"`
}

// Cause is why a guest has ended. The values are those of the driver contract, backend.Cause.
type Cause string

// The causes.
const (
	CauseGuestShutdown Cause = "guest-shutdown"
	CauseGuestPanic    Cause = "guest-panic"
	CauseError         Cause = "error"
	CauseMemoryLost    Cause = "memory-lost"
)

// End is how a guest has ended.
type End struct {
	Cause Cause `json:"cause"`
	// Message says why, if that is not clear from the cause.
	Message string    `json:"message,omitempty"`
	At      time.Time `json:"at"`
}

// durable returns what a store keeps of a record: whoever owns the machine next repeats the work that is in progress, and finds out itself
// whether a volume is full.
func (r Record) durable(power Power) Record {
	switch r.Phase {
	case Loading:
		r.Phase = Asleep
	case Full, Copying, Saving:
		r.Phase = Running
		if power == Pause {
			r.Phase = Paused
		}
	}
	return r
}

// facts are what a record gets with its next phase.
type facts struct {
	// memory is what was saved, over how the guest has ended, and unnamed why it does not become this machine.
	memory  *savedmemory.Memory
	over    End
	unnamed string
	// failure is why the work of the phase has failed.
	failure error
	// logBytes is the size of the serial log.
	logBytes int64
}

// enter makes next the phase, with what belongs to it.
func (r *Record) enter(next Phase, f facts) {
	phase := r.Phase
	r.Phase = next
	switch {
	case phase == Starting && next == Running && r.Boot != nil:
		r.Boot = &Boot{LogBytes: f.logBytes} // without what QEMU itself has printed at its start
	case phase == Loading && next == Running:
		r.Memory, r.Owed.Clock = nil, true
	case phase == Loading && next == Ended:
		r.Memory, r.Ended = nil, &End{Cause: CauseMemoryLost, Message: f.failure.Error(), At: time.Now()}
	case phase == Saving && next == Asleep:
		r.Memory, r.Boot = f.memory, nil
	case next == Ended && f.over.Cause != "":
		r.Ended = &f.over
	case next == Ended && f.unnamed != "":
		r.Owed.Name, r.Ended = false, &End{Cause: CauseMemoryLost, Message: f.unnamed, At: time.Now()}
	}
}
