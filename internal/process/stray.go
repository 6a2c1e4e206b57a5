package process

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
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

// markedProcesses returns the processes that have this entry in their environment, as far as it can be read.
func markedProcesses(entry string) []identity {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer closeQuietly(proc)
	names, _ := proc.Readdirnames(-1) // use what could be read
	var found []identity
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		before, err := readStat(pid)
		if err != nil || before.gone || !hasEntry(pid, entry) {
			continue
		}
		// The environment belongs to the process with this start time only if that has not changed.
		if after, err := readStat(pid); err == nil && after.start == before.start {
			found = append(found, identity{PID: pid, Start: before.start})
		}
	}
	return found
}

func hasEntry(pid int, entry string) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	for found := range bytes.SplitSeq(data, []byte{0}) {
		if string(found) == entry {
			return true
		}
	}
	return false
}
