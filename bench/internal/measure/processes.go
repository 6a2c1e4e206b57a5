package measure

import "time"

// Processes are the ids of processes, by name.
type Processes map[string]int

// Processor returns the processor time of each, without those that cannot be told.
func (p Processes) Processor() map[string]time.Duration {
	used := map[string]time.Duration{}
	for name, pid := range p {
		if t, err := ProcessorTime(pid); err == nil {
			used[name] = t
		}
	}
	return used
}

// ProcessorSince returns how much each has used since before, which Processor has returned.
func (p Processes) ProcessorSince(before map[string]time.Duration) map[string]time.Duration {
	used := p.Processor()
	for name := range used {
		used[name] -= before[name]
	}
	return used
}
