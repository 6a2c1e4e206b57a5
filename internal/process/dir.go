package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	// defaultShimTimeout limits the wait for a shim to finish after its manager died, or to write exit.json. A busy disk may take
	// several seconds to sync a file.
	defaultShimTimeout = 20 * time.Second
	// dyingTimeout limits the wait for the end of a killed process; after that it counts as running.
	dyingTimeout = 5 * time.Second
	// pollInterval is the polling interval where the kernel does not notify us.
	pollInterval = 100 * time.Millisecond
)

// Dir is a directory of process records, held under an exclusive lock by one manager. Its methods may be called from
// several goroutines.
type Dir struct {
	path        string
	lock        *os.File
	shimTimeout time.Duration // shimTimeout; shorter in tests

	mu        sync.Mutex
	closed    bool
	processes map[string]*Process
	damaged   map[string]*DamagedError // records that cannot be read
	busy      map[string]bool          // IDs that are being started or removed
	watchers  sync.WaitGroup
}

// Open locks dir, which it creates with mode 0700 if needed, and adopts every process in it. It searches all
// processes of the host for one whose start was interrupted. The error is a *LockedError (errors.Is ErrLocked) if
// another live process holds the directory.
func Open(dir string) (*Dir, error) { return openDir(dir, defaultShimTimeout) }

func openDir(dir string, timeout time.Duration) (*Dir, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open process directory: %w", err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("open process directory: %w", err)
	}
	lock, err := acquireLock(path, lockTimeout)
	if err != nil {
		return nil, err
	}
	d := &Dir{
		path:        path,
		lock:        lock,
		shimTimeout: timeout,
		processes:   map[string]*Process{},
		damaged:     map[string]*DamagedError{},
		busy:        map[string]bool{},
	}
	ids, err := recordIDs(path)
	if err != nil {
		return nil, errors.Join(err, releaseLock(lock))
	}
	for _, id := range ids {
		folder := filepath.Join(path, id)
		rec, err := readRecord(folder)
		if err != nil {
			d.damaged[id] = &DamagedError{ID: id, Folder: folder, Err: err}
			continue
		}
		d.processes[id] = d.adopt(folder, rec)
	}
	return d, nil
}

// Close releases the lock and stops watching. The processes keep running. Channels from Process.Done are no longer
// closed.
func (d *Dir) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	for _, p := range d.processes {
		p.release()
	}
	d.mu.Unlock()
	d.watchers.Wait()
	return releaseLock(d.lock)
}

func (d *Dir) isClosed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}

// Find returns the process with that ID, running or ended. The error is ErrNotFound if there is no record of it, a
// *DamagedError if the record cannot be read.
func (d *Dir) Find(id string) (*Process, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("find process %s: %w", id, ErrClosed)
	}
	if damage := d.damaged[id]; damage != nil {
		return nil, damage
	}
	p := d.processes[id]
	if p == nil {
		return nil, fmt.Errorf("find process %s in %s: %w", id, d.path, ErrNotFound)
	}
	return p, nil
}

// List returns all processes, running or ended, sorted by ID. If records are damaged, it returns the others and an
// error that names the damaged ones.
func (d *Dir) List() ([]*Process, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("list processes: %w", ErrClosed)
	}
	all := make([]*Process, 0, len(d.processes))
	for _, p := range d.processes {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *Process) int {
		if a.ID() < b.ID() {
			return -1
		}
		return 1
	})
	var errs []error
	for _, err := range d.damaged {
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

// Remove deletes the record of an ended process, with its log if that has the default path. The error is
// ErrRunning if the process is alive, nil if there is no record of it.
func (d *Dir) Remove(id string) error {
	p, err := d.reserve(id)
	if err != nil {
		return fmt.Errorf("remove process %s: %w", id, removeReason(err))
	}
	defer d.unreserve(id)
	if p == nil {
		return nil
	}
	p.endShim()
	p.release()
	// Without record.json the folder is ignored, so an interruption does no harm.
	if err := os.Remove(filepath.Join(p.folder, recordFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove process %s: %w", id, err)
	}
	step("remove: record gone")
	if err := os.RemoveAll(p.folder); err != nil {
		return fmt.Errorf("remove process %s: %w", id, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.processes, id)
	return nil
}

// Discard deletes a damaged record, so that the ID can be used again. It returns nil if no record of that ID is damaged.
// The record does not tell whether its process still runs: the caller must first have ended it by a marker in its
// environment, see EndMarked, or know that it has ended.
func (d *Dir) Discard(id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fmt.Errorf("discard process %s: %w", id, ErrClosed)
	}
	damage := d.damaged[id]
	if damage == nil {
		return nil
	}
	err := os.RemoveAll(damage.Folder)
	if errors.Is(err, syscall.ENOTEMPTY) {
		err = os.RemoveAll(damage.Folder) // meanwhile, its shim has written how the process ended
	}
	if err != nil {
		return fmt.Errorf("discard process %s: %w", id, err)
	}
	delete(d.damaged, id)
	return nil
}

func removeReason(err error) error {
	if errors.Is(err, ErrExists) {
		return ErrRunning
	}
	return err
}

// reserve takes the ID for the caller, who must unreserve it. It returns the ended process that has the ID, nil if
// there is none. The error is ErrExists if the process is alive or another caller has reserved the ID.
func (d *Dir) reserve(id string) (*Process, error) {
	if !isValidID(id) {
		return nil, fmt.Errorf("%q is no valid ID: use lower case letters, digits, '.' and '-', beginning with a letter or digit, at most 200, but not %q", id, lockFile)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, ErrClosed
	}
	if damage := d.damaged[id]; damage != nil {
		return nil, damage
	}
	if d.busy[id] {
		return nil, ErrExists
	}
	p := d.processes[id]
	if p != nil && !p.ended() {
		return nil, ErrExists
	}
	d.busy[id] = true
	return p, nil
}

func (d *Dir) unreserve(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.busy, id)
}

// recordIDs returns the names of the folders below dir that hold a record.
func recordIDs(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read process directory: %w", err)
	}
	var ids []string
	for _, entry := range entries {
		if entry.IsDir() && isValidID(entry.Name()) && isRecord(filepath.Join(dir, entry.Name())) {
			ids = append(ids, entry.Name())
		}
	}
	return ids, nil
}

// isValidID reports whether a folder may have this name. No regular expression: compiling one would cost every shim.
func isValidID(id string) bool {
	for i, c := range id {
		isWord := 'a' <= c && c <= 'z' || '0' <= c && c <= '9'
		if !isWord && (i == 0 || c != '.' && c != '-') {
			return false
		}
	}
	return id != "" && len(id) <= 200 && id != lockFile
}
