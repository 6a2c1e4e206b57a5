package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/keelson-dev/keelson/internal/driver/qemu/qmp"
)

const (
	// memoryFD is the name of the descriptor through which QEMU writes and reads its memory.
	memoryFD = "memory"
	// memoryBandwidth in bytes per second is more than any host has: QEMU limits itself to 128 MiB/s by default.
	memoryBandwidth = 1 << 40
	// migrationPoll is the interval of looks at QEMU while it saves or loads its memory.
	migrationPoll = 2 * time.Millisecond
	// haltedLimit is how long QEMU may take for the rest of the memory of a guest, so that it halts it to write that.
	haltedLimit = 50 * time.Millisecond
	// pipeSize is the buffer between QEMU and the manager in bytes; the default limit of Linux for users.
	pipeSize = 1 << 20
)

// write writes the memory of the halted QEMU to a file in dir, durably, and sets its size and digest. It calls count with the number
// of bytes so far. QEMU has let its disks go afterwards. If it fails, there is no file.
func (s *savedMemory) write(ctx context.Context, conn *qmp.Client, dir string, count func(int64) error) error {
	w, err := s.begin(ctx, conn, dir, count, false)
	if err == nil {
		err = w.wait(ctx, conn)
	}
	if err == nil {
		err = keepMemory(dir)
	}
	if err != nil {
		removeMemory(dir)
	}
	return err
}

// memoryWriter writes the memory of a QEMU to a file.
type memoryWriter struct {
	done chan struct{}
	err  error
}

// begin begins to write the memory of QEMU to a file in dir, which keepMemory completes. While a guest runs, what it changes is
// written again. With pauses, QEMU halts it when little is left, and waits for continueMigration before it lets its disks go.
func (s *savedMemory) begin(ctx context.Context, conn *qmp.Client, dir string, count func(int64) error, pauses bool) (*memoryWriter, error) {
	stream, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	_, _ = unix.FcntlInt(theirs.Fd(), unix.F_SETPIPE_SZ, pipeSize) // a smaller one works as well
	err = beginMigration(ctx, conn, theirs, pauses)
	if err = errors.Join(err, theirs.Close()); err != nil {
		_ = stream.Close()
		return nil, err
	}
	w := &memoryWriter{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		defer stream.Close()
		s.Size, s.SHA256, w.err = writeMemory(ctx, dir, stream, count)
	}()
	return w, nil
}

// wait waits until QEMU has written its memory, and the file has it.
func (w *memoryWriter) wait(ctx context.Context, conn *qmp.Client) error {
	<-w.done // each part of the stream has a timeout
	if w.err != nil {
		return w.err
	}
	step("memory written")
	return awaitMigration(ctx, conn)
}

// beginMigration makes QEMU write its memory to a stream. With pauses, it waits for continueMigration before it lets its disks go.
func beginMigration(ctx context.Context, conn *qmp.Client, stream *os.File, pauses bool) error {
	ctx, cancel := context.WithTimeout(ctx, streamTimeout)
	defer cancel()
	limits := map[string]any{"max-bandwidth": int64(memoryBandwidth), "downtime-limit": haltedLimit.Milliseconds()}
	if err := conn.Run(ctx, "migrate-set-parameters", limits, nil); err != nil {
		return err
	}
	capability := map[string]any{"capability": "pause-before-switchover", "state": pauses}
	if err := conn.Run(ctx, "migrate-set-capabilities", map[string]any{"capabilities": []any{capability}}, nil); err != nil {
		return err
	}
	if err := conn.RunWithFile(ctx, "getfd", map[string]any{"fdname": memoryFD}, stream, nil); err != nil {
		return err
	}
	return conn.Run(ctx, "migrate", map[string]any{"uri": "fd:" + memoryFD}, nil)
}

// continueMigration lets QEMU write the rest, which it waits with.
func continueMigration(ctx context.Context, conn *qmp.Client) error {
	return runWithin(ctx, conn, "migrate-continue", map[string]any{"state": migrationPaused}, nil)
}

// migrationPaused is the state of a QEMU that has halted its guest and waits for continueMigration.
const migrationPaused = "pre-switchover"

// migration is how far QEMU has saved its memory.
type migration struct {
	Status string
	Reason string `json:"error-desc"`
	RAM    struct {
		// Passes is how often QEMU has looked for what the guest has changed.
		Passes int `json:"dirty-sync-count"`
	}
}

// queryMigration asks QEMU how far it has saved its memory. The error is why it does not save it any more.
func queryMigration(ctx context.Context, conn *qmp.Client) (info migration, err error) {
	if err := conn.Run(ctx, "query-migrate", nil, &info); err != nil {
		return info, err
	}
	switch info.Status {
	case "", "none", "failed", "cancelled":
		return info, fmt.Errorf("QEMU did not save it: %s %s", info.Status, info.Reason)
	}
	return info, nil
}

// awaitMigration waits until QEMU has saved its memory.
func awaitMigration(ctx context.Context, conn *qmp.Client) error {
	ctx, cancel := context.WithTimeout(ctx, streamTimeout)
	defer cancel()
	return wait.PollUntilContextCancel(ctx, migrationPoll, true, func(ctx context.Context) (bool, error) {
		info, err := queryMigration(ctx, conn)
		return info.Status == "completed", err
	})
}

// cancelMigration ends a migration that is in progress: that of a manager that was killed, or of an attempt that has failed. A guest
// that QEMU has halted for it goes on.
func cancelMigration(ctx context.Context, conn *qmp.Client) {
	_ = conn.Run(ctx, "migrate_cancel", nil, nil) // it may have ended
	_ = awaitMigration(ctx, conn)                 // it has failed
}

// beginLoading makes a QEMU that waits for it load its memory from a file or a stream.
func beginLoading(ctx context.Context, conn *qmp.Client, from *os.File) error {
	if err := conn.RunWithFile(ctx, "getfd", map[string]any{"fdname": memoryFD}, from, nil); err != nil {
		return err
	}
	return conn.Run(ctx, "migrate-incoming", map[string]any{"uri": "fd:" + memoryFD}, nil)
}

// awaitLoaded waits until QEMU has loaded its memory.
func awaitLoaded(ctx context.Context, conn *qmp.Client) error {
	ctx, cancel := context.WithTimeout(ctx, streamTimeout)
	defer cancel()
	return wait.PollUntilContextCancel(ctx, migrationPoll, true, func(ctx context.Context) (bool, error) {
		var status struct{ Status string }
		err := conn.Run(ctx, "query-status", nil, &status)
		return status.Status != "inmigrate", err
	})
}
