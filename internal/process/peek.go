package process

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

// peekTimeout limits the wait of Peek for the exit status of a process that has just ended.
const peekTimeout = 200 * time.Millisecond

// Peek returns the status of every process in dir, sorted by ID. It takes no lock and changes nothing, so it may be
// called while a manager runs. A directory that does not exist has no processes. If records are damaged, it returns the
// others and an error that names the damaged ones.
func Peek(dir string) ([]Status, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("read process directory: %w", err)
	}
	ids, err := recordIDs(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Status
	var errs []error
	for _, id := range ids {
		status, err := peek(filepath.Join(path, id))
		switch {
		case err == nil:
			all = append(all, status)
		case !errors.Is(err, fs.ErrNotExist): // else it was removed meanwhile
			errs = append(errs, err)
		}
	}
	return all, errors.Join(errs...)
}

func peek(folder string) (Status, error) {
	for deadline := time.Now().Add(peekTimeout); ; time.Sleep(5 * time.Millisecond) {
		rec, err := readRecord(folder)
		if err != nil {
			return Status{}, err
		}
		seen := takeSnapshot(folder, rec)
		state := deriveState(rec, seen.run, seen.exit, seen.live)
		if state == Lost && seen.live.shimAlive && time.Now().Before(deadline) {
			continue // the shim is about to write the exit status
		}
		return newStatus(rec, seen.knownChild(rec), seen.exit, state), nil
	}
}
