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
	// pipeSize is the buffer between QEMU and the manager in bytes; the default limit of Linux for users.
	pipeSize = 1 << 20
)

// write writes the memory of the halted QEMU to a file in dir, which keepMemory makes durable, and sets its size and digest. It calls
// count with the number of bytes so far. QEMU has let its disks go afterwards. If it fails, there is no file.
func (s *savedMemory) write(ctx context.Context, conn *qmp.Client, dir string, count func(int64) error) error {
	stream, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer stream.Close()
	_, _ = unix.FcntlInt(theirs.Fd(), unix.F_SETPIPE_SZ, pipeSize) // a smaller one works as well
	err = beginMigration(ctx, conn, theirs)
	if err = errors.Join(err, theirs.Close()); err != nil {
		return err
	}
	s.Size, s.SHA256, err = writeMemory(ctx, dir, stream, count)
	if err != nil {
		return err
	}
	step("memory written")
	if err := awaitMigration(ctx, conn); err != nil {
		removeMemory(dir)
		return err
	}
	return nil
}

// beginMigration makes QEMU write its memory to a stream.
func beginMigration(ctx context.Context, conn *qmp.Client, stream *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, streamTimeout)
	defer cancel()
	if err := conn.Run(ctx, "migrate-set-parameters", map[string]any{"max-bandwidth": int64(memoryBandwidth)}, nil); err != nil {
		return err
	}
	if err := conn.RunWithFile(ctx, "getfd", map[string]any{"fdname": memoryFD}, stream, nil); err != nil {
		return err
	}
	return conn.Run(ctx, "migrate", map[string]any{"uri": "fd:" + memoryFD}, nil)
}

// ignoreShared sets whether QEMU leaves out memory that is in a file when it saves, and does not expect it when it loads.
func ignoreShared(ctx context.Context, conn *qmp.Client, on bool) error {
	return conn.Run(ctx, "migrate-set-capabilities", map[string]any{
		"capabilities": []any{map[string]any{"capability": "x-ignore-shared", "state": on}},
	}, nil)
}

// awaitMigration waits until QEMU has saved its memory.
func awaitMigration(ctx context.Context, conn *qmp.Client) error {
	ctx, cancel := context.WithTimeout(ctx, streamTimeout)
	defer cancel()
	return wait.PollUntilContextCancel(ctx, migrationPoll, true, func(ctx context.Context) (bool, error) {
		var info struct {
			Status string
			Reason string `json:"error-desc"`
		}
		if err := conn.Run(ctx, "query-migrate", nil, &info); err != nil {
			return false, err
		}
		switch info.Status {
		case "completed":
			return true, nil
		case "", "none", "failed", "cancelled":
			return false, fmt.Errorf("QEMU did not save it: %s %s", info.Status, info.Reason)
		}
		return false, nil
	})
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
