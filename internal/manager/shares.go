package manager

import (
	"context"
	"net/netip"
	"slices"
	"sync"
)

// shares hands out a limited number of places so that nobody who takes all they can keeps out an address that asks for few: an
// address has a share, a place that becomes free goes to the address that has the fewest, and there to who came last, because
// those before may have given up.
type shares struct {
	// limit is how many places there are, each how many an address may have, and queue how many may wait.
	limit, each, queue int

	mu            sync.Mutex
	taken, queued int
	holders       map[netip.Prefix]*holder
}

// holder is what an address has, and who waits there for a place, the latest last. What is sent says whether there is one.
type holder struct {
	taken   int
	waiting []chan bool
}

func newShares(limit, each, queue int) *shares {
	return &shares{limit: limit, each: each, queue: queue, holders: map[netip.Prefix]*holder{}}
}

// take waits for a place, which the function that it returns gives back. It returns false if ctx is done before there is one, or
// too many wait.
func (s *shares) take(ctx context.Context, from netip.Addr) (release func(), ok bool) {
	key := ownerOf(from)
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
	place := make(chan bool, 1)
	a.waiting = append(a.waiting, place)
	if s.queued++; s.queued > s.queue {
		s.refuse()
	}
	s.mu.Unlock()
	select {
	case ok = <-place:
		return release, ok
	case <-ctx.Done():
		if s.leave(key, place) {
			release()
		}
		return release, false
	}
}

// release gives a place back, which who waits for it has at once.
func (s *shares) release(key netip.Prefix) {
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
	s.forget(key)
}

// refuse sends away who waits longest at the address where the most do.
func (s *shares) refuse() {
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

// leave ends the wait for a place, and reports whether there was one after all.
func (s *shares) leave(key netip.Prefix, place chan bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.holders[key]
	if a != nil {
		if i := slices.Index(a.waiting, place); i >= 0 {
			a.waiting = slices.Delete(a.waiting, i, i+1)
			s.queued--
			s.forget(key)
			return false
		}
	}
	return <-place // it was decided just now
}

// forget drops a holder that has nothing.
func (s *shares) forget(key netip.Prefix) {
	if a := s.holders[key]; a.taken == 0 && len(a.waiting) == 0 {
		delete(s.holders, key)
	}
}

// ownerOf returns the addresses that count as one: with IPv6 whoever has one has all of its network.
func ownerOf(from netip.Addr) netip.Prefix {
	bits := 32
	if from = from.Unmap(); from.Is6() {
		bits = 64
	}
	prefix, _ := from.WithZone("").Prefix(bits) // of no address it is the zero Prefix, which is an owner, too
	return prefix
}
