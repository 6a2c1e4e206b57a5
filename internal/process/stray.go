package process

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// EndMarked kills every process of this user with entry (NAME=value) in its environment, waits until all are gone, and
// returns their number. It is for processes whose records are lost because the directory was deleted: callers give them a
// unique entry at the start. Descendants inherit it.
func EndMarked(ctx context.Context, entry string) (ended int, err error) {
	if name, value, ok := strings.Cut(entry, "="); !ok || name == "" || len(value) < 8 {
		return 0, fmt.Errorf("end processes marked with %q: this is no NAME=value that nobody else has", entry)
	}
	for {
		found := markedProcesses(entry)
		if len(found) == 0 {
			return ended, nil
		}
		if err := ctx.Err(); err != nil {
			return ended, fmt.Errorf("end processes marked with %s: pid %d is still there: %w", entry, found[0].PID, context.Cause(ctx))
		}
		for _, id := range found {
			if killMarked(id) {
				ended++
			}
		}
	}
}

// IsMarked reports whether any process of this user has entry (NAME=value) in its environment; see EndMarked.
func IsMarked(entry string) bool { return len(markedProcesses(entry)) > 0 }

// killMarked kills a process and reports whether it is gone.
func killMarked(id identity) bool {
	h := openHandle(id, "")
	if h == nil {
		return false // gone already
	}
	defer h.close()
	if err := h.signal(killSignal); err != nil {
		time.Sleep(pollInterval) // not ours to signal, or gone just now; the next search shows
		return false
	}
	gone := h.wait(defaultShimTimeout)
	if gone {
		h.reap()
	}
	return gone
}
