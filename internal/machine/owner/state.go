package owner

// State is what an owner tells of its machine.
type State struct {
	Phase Phase
	// Paused means that the guest was halted as wanted before its memory was copied or saved.
	Paused bool
	// Message is why the guest does not run, if it is to.
	Message string
	// Answers means that QEMU has answered, Silent that it does not answer any more, and Runs that the guest ran when it was last asked.
	Answers, Silent, Runs bool
	// Agent is the state of the agent. Listens means that the guest has opened its channel.
	Agent   Agent
	Listens bool
	// Addresses are those that the guest reports.
	Addresses []string
	// Silence describes the guest if it was reset because it was silent, and has not spoken since.
	Silence *Silence
}

// IsOn reports whether there is a guest.
func (s *State) IsOn() bool {
	switch s.Phase {
	case Running, Paused, Full, Copying, Saving:
		return true
	}
	return false
}

// State returns what the owner knows now.
func (o *Owner) State() State {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := State{
		Phase: o.record.Phase, Paused: o.wanted.Power == Pause, Answers: o.answers, Runs: o.status == Runs, Silent: o.silent,
		Agent: o.guest.state, Listens: o.guest.leave != nil, Addresses: o.guest.addresses,
	}
	if s.Phase == Full {
		s.Message = o.m.Full(o.full)
	}
	if boot := o.record.Boot; boot != nil && boot.Resets > 0 && s.Agent == AgentWaiting {
		silence := boot.Silence
		s.Silence = &silence
	}
	return s
}

// Attach makes the owner one of a QEMU that an earlier owner has left. The addresses are those that the guest has reported to it; known
// means that it has answered.
func (o *Owner) Attach(known bool, addresses []string) {
	o.boot.unseen = true
	if o.guest.state == AgentWaiting {
		o.guest.known, o.guest.addresses = known, addresses
	}
}
