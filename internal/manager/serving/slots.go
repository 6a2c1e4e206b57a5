package serving

import (
	"context"
	"net/netip"
	"slices"
	"sync"
)

// slots is a semaphore that is fair between addresses, so that an address with many requests does not keep out one with few. An
// address has a maximum; a free slot goes to the address that has the fewest, and there to the latest waiter, because earlier ones may
// have given up.
type slots struct {
	// limit is the number of slots, each the maximum of an address, and queue how many may wait.
	limit, each, queue int

	mu            sync.Mutex
	taken, queued int
	holders       map[netip.Prefix]*holder
}

// holder counts the slots of an address, and has its waiters, the latest last. A waiter receives whether it got a slot.
type holder struct {
	taken   int
	waiting []chan bool
}

func newSlots(limit, each, queue int) *slots {
	return &slots{limit: limit, each: each, queue: queue, holders: map[netip.Prefix]*holder{}}
}

// acquire waits for a slot; the function that it returns releases it. It returns false if ctx is done first, or if too many wait.
func (s *slots) acquire(ctx context.Context, from netip.Addr) (release func(), ok bool) {
	key := networkOf(from)
	release = sync.OnceFunc(func() { s.release(key) })
	s.mu.Lock()
	a := s.holders[key]
	if a == nil {
		a = &holder{}
		s.holders[key] = a
	}
	if s.taken < s.limit && a.taken < s.each {
		s.taken++
		a.taken++
		s.mu.Unlock()
		return release, true
	}
	slot := make(chan bool, 1)
	a.waiting = append(a.waiting, slot)
	if s.queued++; s.queued > s.queue {
		s.dropOldest()
	}
	s.mu.Unlock()
	select {
	case ok = <-slot:
		return release, ok
	case <-ctx.Done():
		if s.abandon(key, slot) {
			release()
		}
		return release, false
	}
}

// release passes a slot on to the next waiter, if there is one.
func (s *slots) release(key netip.Prefix) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	s.holders[key].taken--
	var next *holder
	for _, a := range s.holders {
		if len(a.waiting) > 0 && a.taken < s.each && (next == nil || a.taken < next.taken) {
			next = a
		}
	}
	if next != nil {
		last := len(next.waiting) - 1
		next.waiting[last] <- true
		next.waiting = next.waiting[:last]
		s.queued--
		s.taken++
		next.taken++
	}
	s.dropIfEmpty(key)
}

// dropOldest refuses the oldest waiter of the address with the most waiters.
func (s *slots) dropOldest() {
	var most *holder
	for _, a := range s.holders {
		if most == nil || len(a.waiting) > len(most.waiting) {
			most = a
		}
	}
	most.waiting[0] <- false
	most.waiting = most.waiting[1:]
	s.queued--
}

// abandon ends the wait for a slot, and reports whether the waiter got one after all.
func (s *slots) abandon(key netip.Prefix, slot chan bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.holders[key]
	if a != nil {
		if i := slices.Index(a.waiting, slot); i >= 0 {
			a.waiting = slices.Delete(a.waiting, i, i+1)
			s.queued--
			s.dropIfEmpty(key)
			return false
		}
	}
	return <-slot // it was decided just now
}

// dropIfEmpty drops the holder of an address without slots and waiters.
func (s *slots) dropIfEmpty(key netip.Prefix) {
	if a := s.holders[key]; a.taken == 0 && len(a.waiting) == 0 {
		delete(s.holders, key)
	}
}

// networkOf returns the network that counts as one address: with IPv6, a client has all addresses of its /64.
func networkOf(from netip.Addr) netip.Prefix {
	bits := 32
	if from = from.Unmap(); from.Is6() {
		bits = 64
	}
	prefix, _ := from.WithZone("").Prefix(bits) // without an address it is the zero Prefix
	return prefix
}
