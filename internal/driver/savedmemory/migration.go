package savedmemory

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

const (
	// commandTimeout is how long QEMU may take for a command that does not wait for its memory.
	commandTimeout = 10 * time.Second
	// memoryFD is the name of the descriptor through which QEMU writes and reads its memory.
	memoryFD = "memory"
	// memoryBandwidth in bytes per second is more than any host has: QEMU limits itself to 128 MiB/s by default.
	memoryBandwidth = 1 << 40
	// migrationPoll is the interval of looks at QEMU while it saves or loads its memory.
	migrationPoll = 2 * time.Millisecond
	// pipeSize is the buffer between QEMU and the manager in bytes; the default limit of Linux for users.
	pipeSize = 1 << 20
)

// Write writes the memory of the halted QEMU to a file in dir, which Keep makes durable, and sets its size and digest. It calls
// count with the number of bytes so far. QEMU has let its disks go afterwards. If it fails, there is no file.
func (m *Memory) Write(ctx context.Context, conn *qmp.Client, dir string, count func(int64) error) error {
	file, err := create(dir)
	if err != nil {
		return err
	}
	if err := errors.Join(m.WriteTo(ctx, conn, file, count), file.Close()); err != nil {
		Remove(dir)
		return err
	}
	return nil
}

// WriteTo is Write to an empty file.
func (m *Memory) WriteTo(ctx context.Context, conn *qmp.Client, file *os.File, count func(int64) error) error {
	stream, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer stream.Close()
	_, _ = unix.FcntlInt(theirs.Fd(), unix.F_SETPIPE_SZ, pipeSize) // a smaller one works as well
	err = BeginSaving(ctx, conn, theirs)
	if err = errors.Join(err, theirs.Close()); err != nil {
		return err
	}
	if m.Size, m.SHA256, err = write(ctx, file, stream, count); err != nil {
		return err
	}
	Step("memory written")
	return AwaitSaved(ctx, conn)
}

// BeginSaving makes QEMU write its memory to a stream.
func BeginSaving(ctx context.Context, conn *qmp.Client, stream *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	if err := conn.Run(ctx, "migrate-set-parameters", map[string]any{"max-bandwidth": int64(memoryBandwidth)}, nil); err != nil {
		return err
	}
	if err := conn.RunWithFile(ctx, "getfd", map[string]any{"fdname": memoryFD}, stream, nil); err != nil {
		return err
	}
	return conn.Run(ctx, "migrate", map[string]any{"uri": "fd:" + memoryFD}, nil)
}

// AwaitSaved waits until QEMU has saved its memory.
func AwaitSaved(ctx context.Context, conn *qmp.Client) error {
	return wait.PollUntilContextTimeout(ctx, migrationPoll, Timeout, true, func(ctx context.Context) (bool, error) {
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

// BeginLoading makes a QEMU that waits for it load its memory from a file or a stream.
func BeginLoading(ctx context.Context, conn *qmp.Client, from *os.File) error {
	if err := conn.RunWithFile(ctx, "getfd", map[string]any{"fdname": memoryFD}, from, nil); err != nil {
		return err
	}
	return conn.Run(ctx, "migrate-incoming", map[string]any{"uri": "fd:" + memoryFD}, nil)
}

// AwaitLoaded waits until QEMU has loaded its memory.
func AwaitLoaded(ctx context.Context, conn *qmp.Client) error {
	return wait.PollUntilContextTimeout(ctx, migrationPoll, Timeout, true, func(ctx context.Context) (bool, error) {
		var status struct{ Status string }
		err := conn.Run(ctx, "query-status", nil, &status)
		return status.Status != "inmigrate", err
	})
}

// Load makes a QEMU that waits for it load the memory in dir. Its error is an UnusableError if the memory is not the one that was saved,
// or is not that of such a QEMU.
func (m *Memory) Load(ctx context.Context, conn *qmp.Client, dir string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	calling, cancelCalls := context.WithTimeout(ctx, commandTimeout)
	defer cancelCalls()
	version, err := Version(calling, conn)
	if err != nil {
		return err
	}
	if err := m.Check(version, m.CPU, m.Shape); err != nil {
		return err
	}
	theirs, stream, err := os.Pipe()
	if err != nil {
		return err
	}
	defer stream.Close()
	_, _ = unix.FcntlInt(theirs.Fd(), unix.F_SETPIPE_SZ, pipeSize) // a smaller one works as well
	err = BeginLoading(calling, conn, theirs)
	if err = errors.Join(err, theirs.Close()); err != nil {
		return err
	}
	if err := m.read(ctx, dir, stream); err != nil {
		return err
	}
	if err := stream.Close(); err != nil {
		return err
	}
	return AwaitLoaded(ctx, conn)
}

// Halt halts the processors, and reports whether they ran.
func Halt(ctx context.Context, conn *qmp.Client) (wasRunning bool, err error) {
	// To stop, QEMU writes what its disks have cached, which takes long on a busy host.
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	var status struct{ Status string }
	if err := conn.Run(ctx, "query-status", nil, &status); err != nil {
		return false, err
	}
	switch status.Status {
	case "running":
		return true, conn.Run(ctx, "stop", nil, nil)
	case "paused":
		return false, nil
	case "postmigrate":
		// A manager was killed when QEMU had written its memory, and nobody has used that. QEMU has let its disks go; it
		// takes them back when it runs.
		if err := conn.Run(ctx, "cont", nil, nil); err != nil {
			return false, err
		}
		return true, conn.Run(ctx, "stop", nil, nil)
	}
	return false, fmt.Errorf("the machine cannot be put to sleep now: it is in the state %q", status.Status)
}

// Cancel ends an attempt to save the memory that has failed.
func Cancel(ctx context.Context, conn *qmp.Client) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	_ = conn.Run(ctx, "migrate_cancel", nil, nil) // it may have ended
	_ = AwaitSaved(ctx, conn)                     // it has failed
}
