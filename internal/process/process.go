// Package process runs long-lived processes, such as QEMU and control plane components, that outlive the program
// that started them and are adopted by the next one.
//
// Each process has its own folder with three small files. The manager (the process with the Dir) durably writes the intent
// (record.json) before anything starts. A shim, a tiny process of the same binary, starts the child in its own session,
// records its identity (running.json), waits for it and records its exit status (exit.json). All of this survives a crash
// of the manager at any point: the next Open determines for every record whether its process runs, how it ended, or that
// this is unknown (Lost).
//
// A process is identified by its pid, its start time, the boot it was started in and a marker in its environment.
// Where the kernel supports pidfds, one refers to the process, so that a reused pid is never signalled.
//
// A program that uses this package must call Shim at the beginning of main, or import package shim for its side
// effect.
package process

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
)

var (
	// ErrLocked means that another live manager holds the directory. The error is a *LockedError.
	ErrLocked = errors.New("directory is held by another process")
	// ErrClosed means that the Dir was closed before the call.
	ErrClosed = errors.New("directory is closed")
	// ErrExists means that a record of that ID exists and its process is alive or starting.
	ErrExists = errors.New("process exists")
	// ErrNotFound means that there is no record of that ID, or (Signal) that the process is gone.
	ErrNotFound = errors.New("process not found")
	// ErrRunning means that the process is alive, so its record cannot be removed.
	ErrRunning = errors.New("process is running")
)

// LockedError is the error of Open when another live process holds the directory.
type LockedError struct {
	Dir string // the directory that is locked
	PID int    // pid of the holder, 0 if the lock file does not tell
}

// Error names the directory and the holder.
func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s is held by another process; stop that one first", e.Dir)
	}
	return fmt.Sprintf("%s is held by the process %d; stop that one first", e.Dir, e.PID)
}

// Is makes errors.Is(err, ErrLocked) true.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// DamagedError is the error of calls for a process whose record cannot be read. Whether it runs is unknown; see
// Dir.Discard.
type DamagedError struct {
	ID     string
	Folder string // the folder of the record
	Err    error  // why it cannot be read
}

// Error names the record and the remedy.
func (e *DamagedError) Error() string {
	return fmt.Sprintf("record of process %s is damaged, end the process and remove %s: %s", e.ID, e.Folder, e.Err)
}

// Unwrap returns why the record cannot be read.
func (e *DamagedError) Unwrap() error { return e.Err }

// Spec describes a process to start.
type Spec struct {
	ID          string   // name of the record folder: lower case letters, digits, '.' and '-', starting with a letter or digit
	Path        string   // the executable; looked up in the PATH of the caller if it has no slash
	Argv0       string   // argv[0] of the child; empty means Path
	Args        []string // argv[1:]
	Env         []string // complete environment of the child; nil means that of the caller. The marker is added. Never written to disk
	WorkDir     string   // working directory of the child; empty means that of the caller
	Log         string   // file that stdout and stderr are appended to, mode 0600; empty means output.log in the record folder
	LogMaxBytes int64    // size at which the log is rotated, checked about every 10 s by the shim or, if that is gone, the manager; 0 means 10 MiB
	LogKeep     int      // rotated files kept (.1 is the newest); 0 means 2
}

// State is what is known about a process.
type State string

const (
	// Starting means that the intent was written and the shim has not confirmed the start yet.
	Starting State = "Starting"
	// Running means that the process is alive.
	Running State = "Running"
	// Exited means that the process is gone and its exit status is known.
	Exited State = "Exited"
	// Lost means that the process is gone (or was never started) and its exit status is unknown, for example after a reboot.
	Lost State = "Lost"
)

// Status is a snapshot of one process.
type Status struct {
	ID        string
	State     State
	PID       int       // 0 if it never started
	StartedAt time.Time // zero if it never started
	ExitCode  int       // meaningful when State is Exited; -1 if a signal ended the process
	Signal    string    // the signal that ended the process, such as SIGKILL; else empty
	EndedAt   time.Time // when the shim saw the end; zero unless State is Exited
	LogTail   string    // last lines of this process's output, at most 4 KiB
}

// Process is one process of a Dir: running, or ended and not yet removed or replaced. Its methods may be called from
// several goroutines.
type Process struct {
	dir    *Dir
	folder string
	rec    record

	child   *handle // nil if the process was gone when it was adopted
	shim    *handle // nil if the shim was gone
	done    chan struct{}
	settled chan struct{} // closed when the watch has ended: the shim is gone, too, or the Dir is closed

	mu   sync.Mutex
	run  *running
	exit *exited
}

// ID returns the ID from the Spec.
func (p *Process) ID() string { return p.rec.ID }

// PID returns the pid that the process has or had, 0 if it never started.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil {
		return 0
	}
	return p.run.PID
}

// Done returns a channel that is closed when the process is gone and its exit status, if a shim recorded it, is on
// disk. It works the same for processes of an earlier manager. After Dir.Close it is never closed.
func (p *Process) Done() <-chan struct{} { return p.done }

// Status returns what is known about the process now.
func (p *Process) Status() Status {
	ended := p.ended()
	p.mu.Lock()
	if ended && p.exit == nil {
		// A shim that was delayed (a full disk, SIGSTOP) may have written the exit status after Done.
		p.exit = readExit(p.folder, p.rec)
	}
	run, exit := p.run, p.exit
	p.mu.Unlock()
	if !ended {
		exit = nil
	}
	state := Running
	if ended {
		state = Lost
		if exit != nil {
			state = Exited
		}
	}
	return newStatus(p.rec, run, exit, state)
}

// Signal sends sig to the process, never to another one that reuses its pid. The error is ErrNotFound when the
// process is gone.
func (p *Process) Signal(sig syscall.Signal) error {
	if p.ended() || p.child == nil {
		return fmt.Errorf("signal %s to process %s: %w", signalName(sig), p.rec.ID, ErrNotFound)
	}
	err := p.child.signal(sig)
	if errors.Is(err, ErrClosed) && p.ended() {
		err = ErrNotFound // it ended in the meantime
	}
	if err != nil {
		return fmt.Errorf("signal %s to process %s (pid %d): %w", signalName(sig), p.rec.ID, p.PID(), err)
	}
	return nil
}

// ended reports whether Done is closed.
func (p *Process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}
