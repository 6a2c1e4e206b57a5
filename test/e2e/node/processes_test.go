//go:build linux

package node

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// watchProcesses counts the QEMUs of a machine on this host. The function that it returns ends that, and returns the highest number.
func watchProcesses(t *testing.T, uid string) func() int32 {
	t.Helper()
	var most atomic.Int32
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for {
			most.Store(max(most.Load(), int32(countQEMU(uid))))
			select {
			case <-stop:
				return
			case <-ticker.C:
			}
		}
	}()
	ended := false
	end := func() int32 {
		if !ended {
			ended = true
			close(stop)
		}
		<-done
		return most.Load()
	}
	t.Cleanup(func() { end() })
	return end
}

// countQEMU returns the number of QEMUs of a machine on this host.
func countQEMU(uid string) (n int) {
	eachQEMU(func(_ int, arguments []byte) {
		if bytes.Contains(arguments, []byte(uid)) {
			n++
		}
	})
	return n
}

// eachQEMU calls visit for each QEMU in a Pod on this host.
func eachQEMU(visit func(pid int, arguments []byte)) {
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is valid
	for _, path := range commands {
		raw, err := os.ReadFile(path)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path))) // the pattern has digits
		if err == nil && bytes.HasPrefix(raw, []byte("qemu-system-")) {
			visit(pid, raw)
		}
	}
}
