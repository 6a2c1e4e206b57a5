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

// takes are the copies of the disks of a running machine, of which there is one at a time.
type takes struct {
	running sync.WaitGroup
	// turn is full during one.
	turn chan struct{}

	mu sync.Mutex
	// held means that there is none, because the machine falls asleep. cancel ends the one there is.
	held   bool
	cancel context.CancelCauseFunc
}

// errFallsAsleep and errPowersOff are why disks are not copied.
var (
	errFallsAsleep = errors.New("the machine is falling asleep; the snapshot is taken when it is asleep")
	errPowersOff   = errors.New("the machine is being powered off")
)

// begin waits for the turn of a copy. end ends it.
func (t *takes) begin(ctx context.Context, cancel context.CancelCauseFunc) (end func(), err error) {
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held {
		<-t.turn
		return nil, errFallsAsleep
	}
	t.cancel = cancel
	return func() {
		t.mu.Lock()
		t.cancel = nil
		t.mu.Unlock()
		<-t.turn
	}, nil
}

// hold ends the copy there is, and prevents others until release is called: QEMU does not write its memory while it copies disks.
func (t *takes) hold() (release func()) {
	t.mu.Lock()
	t.held = true
	if t.cancel != nil {
		t.cancel(errFallsAsleep)
	}
	t.mu.Unlock()
	t.turn <- struct{}{}
	return func() {
		t.mu.Lock()
		t.held = false
		t.mu.Unlock()
		<-t.turn
	}
}

// interrupt ends the copy there is because of a reason.
func (t *takes) interrupt(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cancel != nil {
		t.cancel(why)
	}
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
	l.takes.running.Go(func() {
		for {
			conn, err := listener.AcceptUnix()
			if err != nil {
				return // it is closed
			}
			l.takes.running.Go(func() { l.serveTake(ctx, conn) })
		}
	})
	return func() {
		cancel()
		_ = listener.Close() // and removed
		l.takes.running.Wait()
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
	if err := l.take(ctx, cancel, conn, received); err != nil {
		if ctx.Err() != nil {
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

// take copies the disks for a Take, which sends the files of the copies.
func (l *launcher) take(ctx context.Context, cancel context.CancelCauseFunc, conn *net.UnixConn, received chan []*os.File) error {
	end, err := l.takes.begin(ctx, cancel)
	if err != nil {
		return err
	}
	defer end()
	monitor := l.access.currentMonitor()
	if monitor == nil {
		return errNoGuest
	}
	nodes, err := diskbackup.Query(ctx, monitor)
	if err != nil {
		return err
	}
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
		return err
	}
	var files []*os.File
	select {
	case files = <-received:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer closeAll(files)
	if len(files) != len(disks) && len(files) != len(disks)+1 {
		return fmt.Errorf("%d files were received for %d disks", len(files), len(disks))
	}
	if len(files) > len(disks) && l.unnamed.Load() {
		return savedmemory.ErrUnnamed
	}
	step("files received")
	copied, err := l.copyDisks(ctx, monitor, disks, files)
	if err != nil {
		return err
	}
	return tellTake(conn, copied)
}

// copyDisks copies the disks of the running machine, and its memory if there is a file for it, to files, as they are at one moment. QEMU has
// nothing of it afterwards.
func (l *launcher) copyDisks(ctx context.Context, monitor *qmp.Client, disks []diskbackup.Disk, files []*os.File) (copied takeMessage, err error) {
	defer func() {
		cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), savedmemory.Timeout)
		defer cancel()
		err = errors.Join(err, diskbackup.End(cleaning, monitor)) // QEMU writes what it has cached
		step("backup ended")
	}()
	nodes, err := diskbackup.Query(ctx, monitor)
	if err != nil {
		return copied, err
	}
	for i, disk := range disks {
		if err := nodes.Prepare(ctx, monitor, disk, files[i]); err != nil {
			return copied, fmt.Errorf("prepare the copy of the disk %s: %w", disk.Name, err)
		}
	}
	step("backup prepared")
	withMemory, thaw := len(files) > len(disks), func() bool { return false }
	if !withMemory { // which has what the guest has not written yet
		thaw = l.freeze(ctx, monitor)
	}
	err = diskbackup.Begin(ctx, monitor, disks, withMemory)
	at := time.Now().UTC()
	copied.At, copied.Quiesced = &at, thaw()
	if err != nil {
		return copied, err
	}
	step("backup begun")
	err = diskbackup.Await(ctx, monitor, func(int64) {})
	step("backup complete")
	if err == nil && withMemory {
		copied.Memory, at, err = l.saveHalted(ctx, monitor, disks, files[len(disks)])
	}
	return copied, err
}

// freeze has the agent freeze the file systems of the guest, if it runs and has one. thaw thaws them, and reports whether they were frozen
// until then.
func (l *launcher) freeze(ctx context.Context, monitor *qmp.Client) (thaw func() bool) {
	nothing := func() bool { return false }
	var status struct{ Status string }
	if err := command(monitor, "query-status", &status); err != nil || status.Status != "running" {
		return nothing
	}
	select {
	case l.agentTurn <- struct{}{}: // the queries of followAgent wait
	case <-ctx.Done():
		return nothing
	}
	agent := l.agentConn.Load()
	if agent == nil {
		<-l.agentTurn
		return nothing
	}
	l.mayBeFrozen.Store(true)
	if err := diskbackup.Freeze(ctx, agent); err != nil {
		_, _ = fmt.Fprintf(l.messages, "The agent of the guest does not freeze its file systems: %v\n", err) // a message only
	} else {
		step("guest frozen")
	}
	return func() bool {
		defer func() { <-l.agentTurn }()
		wasFrozen, err := diskbackup.Thaw(context.WithoutCancel(ctx), agent)
		if err != nil {
			_, _ = fmt.Fprintf(l.messages, "The file systems of the guest may be frozen; retrying: %v\n", err) // a message only
			agent.Close()                                                                                      // the next connection thaws them
			return false
		}
		l.mayBeFrozen.Store(false)
		step("guest thawed")
		return wasFrozen
	}
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
