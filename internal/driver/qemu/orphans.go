package qemu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// findOrphans returns the processes of the machine with that UID. UIDs are never reused, so they
// are Keelson's whatever happened to the state directory.
func findOrphans(uid types.UID) ([]int, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	names, err := proc.Readdirnames(-1)
	proc.Close()
	if err != nil {
		return nil, fmt.Errorf("find processes of the machine %s: %w", uid, err)
	}
	var found []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && isMachine(pid, uid) {
			found = append(found, pid)
		}
	}
	return found, nil
}

// isMachine checks the command line and the marker that package process sets in the environment.
func isMachine(pid int, uid types.UID) bool {
	read := func(file string) []byte {
		raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file)) // a process that has ended is no machine
		return raw
	}
	marker := []byte("KEELSON_PROCESS=" + string(uid) + ":")
	return bytes.Contains(read("cmdline"), []byte("\x00-uuid\x00"+string(uid)+"\x00")) && bytes.Contains(read("environ"), marker)
}

// killOrphans kills the processes that findOrphans returns, and returns when they have ended.
func killOrphans(ctx context.Context, uid types.UID) error {
	for {
		pids, err := findOrphans(uid)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			// The handle pins the process: its PID cannot be reused.
			found, err := os.FindProcess(pid)
			if err != nil || !isMachine(pid, uid) {
				continue
			}
			if err := found.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return fmt.Errorf("kill process %d of the machine %s: %w", pid, uid, err)
			}
		}
		timer := time.NewTimer(10 * time.Millisecond)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}
