package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/keelson-dev/keelson/internal/driver/diskbackup"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/owner"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

const (
	// takeSocket is the socket at which a Take connects to the launcher of a machine that runs. It is on the volume of the first disk, so
	// that only who has the disk reaches it.
	takeSocket = "snapshot.sock"
	// maxTakeFiles limits the descriptors in one message.
	maxTakeFiles = 64
)

// takeMessage is what the launcher of a machine tells a Take. First it offers the disks; the Take answers with the descriptors of the files
// of their copies, and one more if it wants the memory. Then it says that the copy is complete. An error may come instead of each. The end of
// the connection ends the copy.
type takeMessage struct {
	Error string     `json:"error,omitempty"`
	Disks []liveDisk `json:"disks,omitempty"`
	// At is the moment of the complete copy, and Quiesced whether the file systems were frozen then.
	At       *time.Time `json:"at,omitempty"`
	Quiesced bool       `json:"quiesced,omitempty"`
	// Memory is the memory at that moment.
	Memory *savedmemory.Memory `json:"memory,omitempty"`
}

// liveDisk is a disk of a running machine: its size now, and the image below it.
type liveDisk struct {
	Disk

	Base   string `json:"base,omitempty"`
	Format string `json:"format,omitempty"`
}

// listenForTakes serves Takes until stop is called.
func (l *launcher) listenForTakes() (stop func(), err error) {
	disks := l.definition.AllDisks()
	if len(disks) == 0 {
		return func() {}, nil
	}
	path := filepath.Join(filepath.Dir(l.diskPath(disks[0])), takeSocket)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a launcher that was killed
		return nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.takes.Go(func() {
		for {
			conn, err := listener.AcceptUnix()
			if err != nil {
				return // it is closed
			}
			l.takes.Go(func() { l.serveTake(ctx, conn) })
		}
	})
	return func() {
		cancel()
		_ = listener.Close() // and removed
		l.takes.Wait()
	}, nil
}

// serveTake serves a Take.
func (l *launcher) serveTake(ctx context.Context, conn *net.UnixConn) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	received := make(chan []*os.File, 1)
	var reading sync.WaitGroup
	reading.Go(func() {
		files, err := receiveFiles(conn)
		received <- files
		if err == nil {
			_, err = conn.Read(make([]byte, 1)) // until the Take ends
		}
		cancel(err)
	})
	if err := l.take(ctx, conn, received); err != nil {
		if errors.Is(err, context.Canceled) {
			err = context.Cause(ctx)
		}
		_, _ = fmt.Fprintf(l.messages, "The disks are not copied for a snapshot: %v\n", err) // a message only
		_ = tellTake(conn, takeMessage{Error: err.Error()})                                  // it may have ended
	}
	_ = conn.Close()
	reading.Wait()
	select {
	case files := <-received:
		closeAll(files)
	default:
	}
}

// take copies the disks for a Take, which sends the files of the copies, and one more if it wants the memory.
func (l *launcher) take(ctx context.Context, conn *net.UnixConn, received chan []*os.File) error {
	o := l.guest()
	if o == nil {
		return errNoGuest
	}
	var files []*os.File
	defer func() { closeAll(files) }()
	copied, err := o.CopyDisks(ctx, owner.Copy{
		Progress: func(int64) {},
		Prepare: func(ctx context.Context, monitor *qmp.Client, nodes *diskbackup.Nodes) ([]diskbackup.Disk, *owner.Saver, error) {
			var disks []diskbackup.Disk
			var offer takeMessage
			for _, disk := range l.definition.AllDisks() {
				live := liveDisk{Disk: Disk{Name: disk.Name, Bytes: nodes.Sizes[qemu.DiskNode(disk.Name)]}}
				if l.base != nil && disk.Name == qemu.RootDisk {
					live.Base, live.Format = l.base.Path, l.base.Format
				}
				offer.Disks = append(offer.Disks, live)
				disks = append(disks, diskbackup.Disk{Name: disk.Name, Node: qemu.DiskNode(disk.Name)})
			}
			if err := tellTake(conn, offer); err != nil {
				return nil, nil, err
			}
			select {
			case files = <-received:
			case <-ctx.Done():
				return nil, nil, ctx.Err()
			}
			if len(files) != len(disks) && len(files) != len(disks)+1 {
				return nil, nil, fmt.Errorf("%d files were received for %d disks", len(files), len(disks))
			}
			step("files received")
			for i, disk := range disks {
				if err := nodes.Prepare(ctx, monitor, disk, files[i]); err != nil {
					return nil, nil, fmt.Errorf("prepare the copy of the disk %s: %w", disk.Name, err)
				}
			}
			if len(files) == len(disks) {
				return disks, nil, nil
			}
			saver := l.saver(func(ctx context.Context, conn *qmp.Client, memory *savedmemory.Memory) error {
				return memory.WriteTo(ctx, conn, files[len(disks)], func(int64) error { return nil })
			})
			return disks, &saver, nil
		},
	})
	if err != nil {
		return err
	}
	return tellTake(conn, takeMessage{At: &copied.At, Quiesced: copied.Quiesced, Memory: copied.Memory})
}

// tellTake sends a message to a Take.
func tellTake(conn *net.UnixConn, message takeMessage) error {
	if err := conn.SetWriteDeadline(time.Now().Add(monitorTimeout)); err != nil {
		return err
	}
	return json.NewEncoder(conn).Encode(message)
}

// sendFiles sends the descriptors of files.
func sendFiles(conn *net.UnixConn, files []*os.File) error {
	var fds []int
	for _, file := range files {
		fds = append(fds, int(file.Fd()))
	}
	_, _, err := conn.WriteMsgUnix([]byte{'\n'}, syscall.UnixRights(fds...), nil)
	return err
}

// receiveFiles is the inverse of sendFiles.
func receiveFiles(conn *net.UnixConn) (files []*os.File, err error) {
	control := make([]byte, syscall.CmsgSpace(4*maxTakeFiles))
	n, length, flags, _, err := conn.ReadMsgUnix(make([]byte, 1), control)
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return nil, err
	}
	messages, err := syscall.ParseSocketControlMessage(control[:length])
	if err != nil {
		return nil, err
	}
	for i := range messages {
		fds, err := syscall.ParseUnixRights(&messages[i])
		if err != nil {
			continue // it has no descriptors
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	for _, file := range files {
		if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
			closeAll(files)
			return nil, errors.Join(errors.New("what was received is no file"), err)
		}
	}
	if flags&syscall.MSG_CTRUNC != 0 {
		closeAll(files)
		return nil, fmt.Errorf("more than %d files were received", maxTakeFiles)
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, file := range files {
		_ = file.Close() // what was written is made durable by the Take
	}
}
