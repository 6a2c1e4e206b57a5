package process

import (
	"os"
	"path/filepath"
	"time"

	"github.com/keelson-dev/keelson/internal/atomicfile"
)

// adopt returns the Process for a record of an earlier manager. It waits for a shim that is still working, and kills
// one that hangs: afterwards the child is either known or can no longer start.
func (d *Dir) adopt(folder string, rec record) *Process {
	return d.attach(folder, rec, locate(folder, rec, d.shimTimeout))
}

// snapshot is the state of a record and of its processes.
type snapshot struct {
	run   *running // nil if there is no running.json of this start
	exit  *exited  // nil if there is no exit.json of this start
	live  liveness
	child *identity  // found by its marker; only searched for if run is nil
	shims []identity // the same
}

// takeSnapshot reads the files of a record and checks their processes. Only for a record without running.json, from an
// interrupted start, it searches all processes. It reads exit.json last: if it is missing after child and shim were found
// dead, it will never be written.
func takeSnapshot(folder string, rec record) snapshot {
	s := snapshot{run: readRunning(folder, rec), live: liveness{bootID: bootID()}}
	switch {
	case rec.BootID != s.live.bootID:
	case s.run != nil:
		s.live.childAlive = isAlive(s.run.identity, rec.marker())
		s.live.shimAlive = s.run.Shim.PID > 0 && isAlive(s.run.Shim, rec.shimMarker())
	default:
		s.child, s.shims = findByMarker(rec)
		s.live.childAlive, s.live.shimAlive = s.child != nil, len(s.shims) > 0
	}
	s.exit = readExit(folder, rec)
	return s
}

// locate returns the child of a record, running or ended; nil if it was never started or left no trace.
func locate(folder string, rec record, timeout time.Duration) *running {
	empty := 0
	for deadline := time.Now().Add(timeout); ; time.Sleep(5 * time.Millisecond) {
		s := takeSnapshot(folder, rec)
		switch {
		case s.run != nil || rec.BootID != s.live.bootID:
			return s.run
		case s.live.shimAlive && time.Now().Before(deadline):
			empty = 0
		case s.live.shimAlive:
			for _, id := range s.shims {
				kill(id, rec.shimMarker())
			}
			empty = 0
		case s.live.childAlive:
			return adoptChild(folder, rec, *s.child)
		default:
			// The shim may have started the child after the search passed, and died before the search reached
			// the shim. If a second search finds nothing, there is no child, because no shim existed when it
			// began.
			if empty++; empty == 2 {
				return readRunning(folder, rec)
			}
		}
	}
}

// known returns the record of the child, or the result of the search if the shim has not recorded it.
func (s snapshot) knownChild(rec record) *running {
	if s.run == nil && s.child != nil {
		return rec.startOf(*s.child)
	}
	return s.run
}

// startOf returns the record of a child that its shim did not record.
func (r record) startOf(child identity) *running {
	return &running{identity: child, Nonce: r.Nonce, StartedAt: r.Created}
}

// adoptChild records a child whose shim died before recording it.
func adoptChild(folder string, rec record, child identity) *running {
	run := rec.startOf(child)
	// If it cannot be written, the next manager searches again.
	_ = atomicfile.WriteJSON(filepath.Join(folder, runningFile), run, atomicfile.Volatile)
	return run
}

// kill kills a process that is verified to be ours and waits for its end.
func kill(id identity, marker string) {
	h := openHandle(id, marker)
	if h == nil {
		return
	}
	defer h.close()
	if h.signal(killSignal) == nil {
		h.wait(defaultShimTimeout)
		h.reap()
	}
}

// attach returns the Process of a record, and watches it; run is nil if it has no child.
func (d *Dir) attach(folder string, rec record, run *running) *Process {
	p := &Process{dir: d, folder: folder, rec: rec, run: run, done: make(chan struct{}), settled: make(chan struct{})}
	if run != nil && rec.BootID == bootID() {
		p.child = openHandle(run.identity, rec.marker())
		if run.Shim.PID > 0 {
			p.shim = openHandle(run.Shim, rec.shimMarker())
		}
	}
	if p.child == nil && p.shim == nil {
		p.finish()
		close(p.settled)
		return p
	}
	d.watchers.Go(p.watch)
	if p.child != nil {
		d.watchers.Go(p.boundLog)
	}
	if p.child == nil || IsEnding(run.PID) {
		// It has ended or is ending, and its shim writes the exit status: it does not count as running unless it
		// hangs in the kernel.
		select {
		case <-p.done:
		case <-p.settled:
		case <-time.After(d.shimTimeout + dyingTimeout):
		}
	}
	return p
}

// watch waits for the end of the child and then for the shim, which writes the exit status. A shim that hangs or
// finds the disk full delays Done only up to a timeout.
func (p *Process) watch() {
	defer close(p.settled)
	if p.child != nil && !p.child.wait(0) {
		return // the Dir was closed
	}
	shimGone := p.shim == nil || p.shim.wait(p.dir.shimTimeout)
	if p.dir.isClosed() {
		return
	}
	p.finish()
	if p.child != nil {
		p.child.close()
	}
	if p.shim != nil && (shimGone || p.shim.wait(0)) {
		p.shim.reap()
		p.shim.close()
	}
}

// boundLog rotates the log if the shim was killed while the child continues to write. It polls the shim, because only
// watch may wait on that handle, which has a single deadline.
func (p *Process) boundLog() {
	ticker := time.NewTicker(p.rec.LogCheck)
	defer ticker.Stop()
	for {
		select {
		case <-p.done:
			return
		case <-p.settled: // the Dir was closed
			return
		case <-ticker.C:
		}
		switch {
		case !isAlive(p.child.id, p.child.marker):
			return // keep its last output
		case p.shim != nil && isAlive(p.shim.id, p.shim.marker):
			// The shim rotates.
		default:
			if info, err := os.Stat(p.rec.Log); err == nil && info.Size() >= p.rec.LogMaxBytes {
				rotate(p.rec.Log, p.rec.LogKeep)
			}
		}
	}
}

// finish determines how the process ended and closes Done.
func (p *Process) finish() {
	p.mu.Lock()
	p.exit = readExit(p.folder, p.rec)
	p.mu.Unlock()
	close(p.done)
}

// endShim ensures that the shim of an ended process is gone and writes nothing more.
func (p *Process) endShim() {
	if p.shim == nil {
		return
	}
	_ = p.shim.signal(killSignal) // an error means that it is gone
	select {
	case <-p.settled:
	case <-time.After(defaultShimTimeout):
	}
}

// release stops watching the process.
func (p *Process) release() {
	for _, h := range []*handle{p.child, p.shim} {
		if h != nil {
			h.close()
		}
	}
}

// removeRecord deletes the leftovers of a failed start.
func removeRecord(folder string) {
	for _, name := range []string{recordFile, runningFile, exitFile, exitFile + atomicfile.Suffix} {
		_ = os.Remove(filepath.Join(folder, name))
	}
	if info, err := os.Stat(filepath.Join(folder, defaultLog)); err == nil && info.Size() == 0 {
		_ = os.Remove(filepath.Join(folder, defaultLog))
	}
	_ = os.Remove(folder) // fails if it contains other files, such as the log of an earlier process
}
