package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/driver/guestimage"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

const (
	// memoryRecord is the file on the volume of the root disk that describes the saved memory. The machine is asleep as long as it is
	// there: it is written when the memory is complete, and removed before the guest goes on, so that no memory is used twice.
	memoryRecord = "memory.json"
	// maxMemoryRecord limits it.
	maxMemoryRecord = 64 << 10
)

// savedMemory is the record.
type savedMemory struct {
	savedmemory.Memory

	// Epoch is that of the machine that was saved.
	Epoch string `json:"epoch,omitempty"`
	// GuestOf is the machine that the guest takes itself for, and that Shape is of; nil if it knows that it is this one.
	GuestOf *Identity `json:"guestOf,omitempty"`
}

// step is called at each point where a crash makes a difference. Tests replace it.
var step = func(string) {}

// sleeper follows attempts to save the memory of the machine. All who ask for one meanwhile wait for its end.
type sleeper struct {
	// requests has a channel for the result of each request.
	requests chan chan error
	waiting  []chan error
	// results has the result of the attempt.
	results chan error
	running bool
}

func newSleeper() *sleeper {
	return &sleeper{requests: make(chan chan error), results: make(chan error, 1)}
}

// begin begins an attempt, unless there is one.
func (s *sleeper) begin(save func() error) {
	if !s.running {
		s.running = true
		go func() { s.results <- save() }()
	}
}

// end ends an attempt with its result, which it returns.
func (s *sleeper) end(err error) error {
	for _, done := range s.waiting {
		done <- err
	}
	s.waiting, s.running = nil, false
	return err
}

// serveSleep puts the machine to sleep for the manager. The response comes when it is asleep, or cannot sleep.
func (l *launcher) serveSleep(w http.ResponseWriter, r *http.Request) {
	if l.access.currentMonitor() == nil {
		http.Error(w, errNoGuest.Error(), http.StatusServiceUnavailable)
		return
	}
	done := make(chan error, 1)
	select {
	case l.sleeper.requests <- done:
	case <-r.Context().Done(): // the manager, or the machine, has ended
		return
	}
	select {
	case err := <-done:
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	case <-r.Context().Done():
	}
}

// saveMemory saves the memory of the machine, whose processors are halted afterwards. If it fails, the machine is as it was.
func (l *launcher) saveMemory(conn *qmp.Client) error {
	if !l.definition.CanSleep() {
		return errors.New("the machine has no root disk whose volume it keeps, and its memory would be in; set spec.action to active or stopped")
	}
	ctx := context.Background() // each step has a timeout
	saved := &savedMemory{Memory: savedmemory.Memory{CPU: l.processors, Shape: l.shape}, Epoch: l.definition.Epoch}
	if l.unnamed.Load() {
		saved.Shape, saved.GuestOf = l.memory.Shape, l.memory.GuestOf
	}
	goOn := l.takes.hold()
	step("sleep begun")
	wasRunning, err := savedmemory.Halt(ctx, conn)
	if err == nil {
		step("halted")
		err = l.writeMemory(ctx, conn, saved)
	}
	if err == nil || discardMemory(l.dirs.Disk) != nil { // what the next launcher would read counts
		l.savedBytes = saved.Size
		step("sleep recorded")
		return nil
	}
	savedmemory.Cancel(ctx, conn)
	if wasRunning {
		err = errors.Join(err, command(conn, "cont", nil))
	}
	goOn()
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("the volume of the root disk has no room for the memory of the machine, which runs on: increase spec.resource.rootDisk "+
			"by spec.resource.memory and restart the machine, if its StorageClass can expand volumes; or set spec.action to active or stopped: %w", err)
	}
	return fmt.Errorf("save the memory of the machine: %w", err)
}

// writeMemory writes the memory of the halted machine, and then its record, durably.
func (l *launcher) writeMemory(ctx context.Context, conn *qmp.Client, saved *savedMemory) (err error) {
	if saved.QEMU, err = version(conn); err != nil {
		return err
	}
	if err := saved.Write(ctx, conn, l.dirs.Disk, func(int64) error { return nil }); err != nil {
		return err
	}
	if err := savedmemory.Keep(l.dirs.Disk); err != nil {
		return err
	}
	step("memory kept")
	// QEMU has written all that it had to, and has let the disks go.
	if saved.Files, err = savedmemory.Stamp(l.dirs.Disk, l.diskPaths()); err != nil {
		return err
	}
	saved.At = time.Now().UTC()
	return atomicfile.WriteJSON(filepath.Join(l.dirs.Disk, memoryRecord), saved, atomicfile.Durable)
}

// command runs a command of QEMU that has to succeed. It has long: to let the processors run, QEMU opens the disks for writing.
func command(conn *qmp.Client, name string, result any) error {
	ctx, cancel := context.WithTimeout(context.Background(), savedmemory.Timeout)
	defer cancel()
	return conn.Run(ctx, name, nil, result)
}

// version returns the version of a QEMU.
func version(conn *qmp.Client) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), savedmemory.Timeout)
	defer cancel()
	return savedmemory.Version(ctx, conn)
}

// discardMemory removes the saved memory in a folder, durably: the record first, without which it is never used.
func discardMemory(dir string) error {
	if err := voidMemory(dir); err != nil {
		return err
	}
	savedmemory.Remove(dir)
	return nil
}

// voidMemory removes the record of the saved memory in a folder, durably.
func voidMemory(dir string) error {
	err := os.Remove(filepath.Join(dir, memoryRecord))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	} else if err == nil {
		err = atomicfile.SyncDir(dir)
	}
	if err != nil {
		return err
	}
	step("memory used")
	return nil
}

// diskPaths returns the files that the guest writes to.
func (l *launcher) diskPaths() (paths []string) {
	for _, disk := range l.definition.AllDisks() {
		paths = append(paths, l.diskPath(disk))
	}
	return paths
}

// shapeOf returns a digest of the devices of the machine, if it had an identity. What is outside of them, such as ports, is not part of it.
func (l *launcher) shapeOf(guest *guestimage.Guest, id Identity) string {
	c := l.config(guest)
	c.Name, c.UUID = id.Namespace+"/"+id.Name, id.UID
	words := []string{c.Shape()} // which is that of a machine with any disks
	for _, disk := range c.Disks {
		words = append(words, disk.Name)
	}
	return strings.Join(words, " ")
}

// findMemory finds the saved memory that the machine goes on with, if there is one. The error is a savedmemory.UnusableError if the
// machine was asleep, and its memory does not fit it; then it has no memory any more.
func (l *launcher) findMemory(guest *guestimage.Guest) error {
	if !l.definition.CanSleep() {
		return nil
	}
	saved, err := l.readMemory(guest)
	if err == nil && saved != nil {
		l.memory = saved
		return nil
	}
	if err == nil || savedmemory.IsUnusable(err) {
		err = errors.Join(err, discardMemory(l.dirs.Disk)) // or what is left of an attempt
	}
	return err
}

// readMemory returns the saved memory that the machine goes on with; nil if there is none.
func (l *launcher) readMemory(guest *guestimage.Guest) (*savedMemory, error) {
	path := filepath.Join(l.dirs.Disk, memoryRecord)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && l.definition.Asleep:
		return nil, savedmemory.Unusable("the volume of the root disk does not have it")
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case info.Size() > maxMemoryRecord:
		return nil, savedmemory.Unusable("its file %s is damaged", memoryRecord)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var saved savedMemory
	if json.Unmarshal(raw, &saved) != nil {
		return nil, savedmemory.Unusable("its file %s is damaged", memoryRecord)
	}
	if saved.Epoch != l.definition.Epoch {
		return nil, nil
	}
	shape := l.shape
	if saved.GuestOf != nil {
		shape = l.shapeOf(guest, *saved.GuestOf)
	}
	if err := saved.Check("", l.processors, shape); err != nil {
		return nil, err
	}
	return &saved, saved.CheckFiles(l.dirs.Disk, l.diskPaths())
}

// load gives a new QEMU the saved memory, and lets the machine go on. Until the record of the memory is removed, the guest does not run,
// and the memory can be loaded again.
func (l *launcher) load(conn *qmp.Client) error {
	l.loading = true
	if err := l.memory.Load(context.Background(), conn, l.dirs.Disk); err != nil {
		return err
	}
	step("memory loaded")
	if err := l.disconnectFork(conn); err != nil {
		return err
	}
	// From here on, the memory is never used again, whatever happens.
	if err := discardMemory(l.dirs.Disk); err != nil {
		return err
	}
	l.loading = false
	step("memory removed")
	l.clockStopped.Store(true)
	if err := command(conn, "cont", nil); err != nil {
		return fmt.Errorf("resume the machine: %w", err)
	}
	step("awake")
	// There is no event of a channel that the guest had open.
	var devices []struct {
		Label string
		Open  bool `json:"frontend-open"`
	}
	if err := command(conn, "query-chardev", &devices); err != nil {
		return err
	}
	for _, device := range devices {
		if device.Label == qemu.AgentChardev && device.Open && !l.definition.NoAgent {
			l.agentOpened()
		}
	}
	return nil
}

// describeLoad returns how a machine ended whose memory was being loaded.
func (l *launcher) describeLoad(failure error, status error, output string) Ended {
	var exit interface{ ExitCode() int }
	why := ""
	switch unusable := (*savedmemory.UnusableError)(nil); {
	case errors.As(failure, &unusable):
		why = unusable.Why
	case errors.Is(failure, qmp.ErrClosed) || errors.Is(failure, syscall.EPIPE):
		if errors.As(status, &exit) && exit.ExitCode() > 0 {
			why = "QEMU does not accept it: " + output
		}
	}
	if why == "" {
		return Ended{Cause: CauseStartFailed, Message: fmt.Sprintf("wake the machine: %v: %v: %s", failure, status, output)}
	}
	return l.loseMemory(why)
}

// loseMemory discards memory that cannot be used, and returns how the machine ended.
func (l *launcher) loseMemory(why string) Ended {
	if err := discardMemory(l.dirs.Disk); err != nil {
		return Ended{Cause: CauseStartFailed, Message: fmt.Sprintf("discard the saved memory, which cannot be used because %s: %v", why, err)}
	}
	return Ended{Cause: CauseMemoryLost, Message: why}
}

// setClock sets the clock of a guest that has slept.
func (l *launcher) setClock(ctx context.Context, agent *qmp.Client) error {
	if !l.clockStopped.Load() {
		return nil
	}
	err := agent.Run(ctx, "guest-set-time", map[string]any{"time": time.Now().UnixNano()}, nil)
	if refused := (*qmp.Error)(nil); errors.As(err, &refused) {
		_, _ = fmt.Fprintf(l.messages, "The clock of the guest is late: its agent does not set it: %v\n", err) // a message only
	} else if err != nil {
		return err
	}
	l.clockStopped.Store(false)
	return nil
}
