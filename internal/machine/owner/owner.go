// Package owner owns the QEMU of one machine, from when it starts until it has ended. Everything that happens to it meanwhile is decided
// by one pure function, Next. The drivers only say where the machine runs.
package owner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/keelson-dev/keelson/internal/driver/guestboot"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

const (
	// monitorTimeout is the response timeout of a monitor.
	monitorTimeout = 5 * time.Second
	// firstDialPause and lastDialPause are the intervals of attempts to connect to a monitor.
	firstDialPause, lastDialPause = 2 * time.Millisecond, time.Second
	// floodPause is the pause before reconnecting to a monitor that floods its client with events. Its machine does not count as silent
	// meanwhile.
	floodPause = 3 * time.Second
	// pressInterval is the interval at which the power button is pressed: a guest that is booting ignores it.
	pressInterval = 500 * time.Millisecond
	// bootInterval is the interval of looks at a guest that boots.
	bootInterval = 2 * time.Second
)

// CheckInterval is the interval of looks at the status of QEMU, and at full volumes. Tests shorten it.
var CheckInterval = 20 * time.Second

// Step is called at each point where a crash makes a difference. The crash tests replace it.
var Step = func(string) {}

// ErrNotOn means that there is no guest.
var ErrNotOn = errors.New("the machine is starting or has ended")

// Machine is what an owner has to know of its machine, and whom it tells about it.
type Machine struct {
	// UID is the UUID of its QEMU, whose sockets are in Dir. Its saved memory is in Memory.
	UID, Dir, Memory string
	// PID is the process of QEMU. Gone is closed when it has ended, and Rejected returns what it has printed then if it has not accepted
	// the memory; otherwise, it is empty.
	PID      int
	Gone     <-chan struct{}
	Rejected func() string
	// NoAgent means that the guest has no agent.
	NoAgent bool
	// UsualBoot is how long the guest usually needs to boot, if that was not measured; 0 means that it may be silent for ever.
	UsualBoot time.Duration
	// LogBytes returns the size of the serial log. It is nil if nobody can tell whether the guest has written to its console.
	LogBytes func() int64
	// Address is the hardware address of the machine, and Instance the instance ID in its seed if other machines have the same address. A
	// guest with the memory of another machine gets them.
	Address, Instance string

	// Save makes a record durable. If it fails, the record is as it was.
	Save func(Record) error
	// HasRoom reports whether the volumes of disks have room, and Full returns why a machine does not run whose volumes have none.
	HasRoom func(disks []string) bool
	Full    func(disks []string) string
	// Changed is called when the State has changed. A guest can cause byGuest changes at will.
	Changed func(byGuest bool)
	// Connected is called when the monitor answers, also again, and Released when the guest has released a device.
	Connected func(*qmp.Client)
	Released  func()
	// Answered is called before the first answer of the agent is in the State.
	Answered func()
	// Log writes a message for the administrator.
	Log func(message string)
}

// Owner owns a QEMU.
type Owner struct {
	m Machine
	// ctx ends with the QEMU or the owner, done is closed then.
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	// look makes the loop look at QEMU, and decide.
	look chan struct{}
	// recording is held while the record changes. It is locked before mu.
	recording sync.Mutex
	// working is full during a copy of disks or memory, or while memory is saved.
	working chan struct{}

	mu     sync.Mutex
	record Record
	// saved is what was made durable last.
	saved  Record
	wanted Wanted
	status Status
	work   Result
	// workError is why the work has failed, and memory is what it has saved.
	workError error
	memory    *savedmemory.Memory
	// interrupt ends the copy that there is. While sleeps is not 0, none begins.
	interrupt context.CancelCauseFunc
	sleeps    int
	// over is how the guest has ended, if it has.
	over End
	// full are the disks that could not be written, and pressed is when the power button was pressed.
	full    []string
	pressed time.Time
	// conn is the connection to the monitor; nil if there is none. answers means that QEMU has answered, and silent that it does not any
	// more.
	conn            *qmp.Client
	answers, silent bool
	// unnamed is why the guest does not become this machine.
	unnamed string
	guest   guest
	boot    boot
	// started is when the guest began to run.
	started time.Time
	// changed is closed when something has changed.
	changed chan struct{}
}

// New returns the owner of a QEMU that has just been started. In Loading, and with template, Load has to be called.
func New(m Machine, record Record, template bool) *Owner {
	o := &Owner{
		m: m, record: record, done: make(chan struct{}), look: make(chan struct{}, 1), working: make(chan struct{}, 1), changed: make(chan struct{}),
		wanted: Wanted{Power: On}, boot: boot{clock: guestboot.Clock{PID: m.PID}}, started: time.Now(),
	}
	if record.Phase == Paused {
		o.wanted.Power = Pause
	}
	if o.boot.unseen = template; template || record.Phase == Loading {
		o.work = Pending
	}
	o.saved = record.durable(o.wanted.Power)
	o.guest.state, o.guest.turn = AgentWaiting, make(chan struct{}, 1)
	if m.NoAgent {
		o.guest.state = AgentNone
	}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	return o
}

// Start begins to follow the QEMU, in the background.
func (o *Owner) Start() { go o.follow() }

// Close ends the owner, but not the QEMU.
func (o *Owner) Close() {
	o.cancel()
	<-o.done
}

// Done is closed when QEMU has ended, or the owner was closed.
func (o *Owner) Done() <-chan struct{} { return o.done }

// Monitor returns the connection to QEMU; nil if it does not answer.
func (o *Owner) Monitor() *qmp.Client {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.conn
}

// Record returns the record.
func (o *Owner) Record() Record {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.record
}

// SetPower sets whether the machine is to run. It takes effect in the background.
func (o *Owner) SetPower(power Power) {
	o.mu.Lock()
	o.wanted.Power = power
	o.mu.Unlock()
	o.lookSoon()
}

// Switch is SetPower for a machine that is on. It waits until the machine is paused, or runs as far as it can.
func (o *Owner) Switch(ctx context.Context, power Power) error {
	o.SetPower(power)
	return o.Await(ctx, func(s State) bool {
		return s.Phase == Paused && power == Pause || (s.Phase == Running || s.Phase == Full) && power == On
	})
}

// Await waits until the state of the machine is as reached wants. The error is ErrNotOn if the guest ends before.
func (o *Owner) Await(ctx context.Context, reached func(State) bool) error {
	for {
		o.mu.Lock()
		changed := o.changed
		o.mu.Unlock()
		state := o.State()
		if reached(state) {
			return nil
		}
		if state.Phase == Ended || state.Phase == Asleep {
			return ErrNotOn
		}
		select {
		case <-changed:
		case <-o.done:
			if reached(o.State()) {
				return nil
			}
			return ErrNotOn
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tell notes that something has changed, and tells it.
func (o *Owner) tell(byGuest bool) {
	o.mu.Lock()
	close(o.changed)
	o.changed = make(chan struct{})
	o.mu.Unlock()
	o.m.Changed(byGuest)
}

func (o *Owner) lookSoon() {
	select {
	case o.look <- struct{}{}:
	default: // it will
	}
}

// change changes the record, durably as far as that has to be. If it fails, the record is as it was.
func (o *Owner) change(do func(*Record)) error {
	o.recording.Lock()
	defer o.recording.Unlock()
	o.mu.Lock()
	record, before, saved := o.record, o.record, o.saved
	do(&record)
	durable := record.durable(o.wanted.Power)
	o.mu.Unlock()
	if durable != saved {
		if err := o.m.Save(durable); err != nil {
			return fmt.Errorf("record the state of the machine: %w", err)
		}
	}
	o.mu.Lock()
	o.record, o.saved = record, durable
	o.mu.Unlock()
	if record != before {
		o.tell(false)
	}
	return nil
}

// note is change for what is only logged if it fails: a full disk must not prevent the stop of a machine.
func (o *Owner) note(do func(*Record)) {
	if err := o.change(do); err != nil {
		o.m.Log(err.Error())
		o.mu.Lock()
		do(&o.record)
		o.mu.Unlock()
		o.tell(false)
	}
}
