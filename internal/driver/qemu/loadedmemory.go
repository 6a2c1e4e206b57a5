package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
	"github.com/keelson-dev/keelson/internal/process"
)

// loadedKeep is how long the loaded memory of a snapshot is kept after its last use. Tests shorten it.
var loadedKeep = time.Minute

// loadedMemories are the memories of snapshots that several machines go on with. The first machine loads the compressed file by itself: that
// is quicker for one. The second one loads it into a file in memory, which all further ones map copy-on-write.
type loadedMemories struct {
	mu sync.Mutex
	// all has the memories by the digests of their compressed files.
	all map[string]*loadedMemory
}

// loadedMemory is the memory of a snapshot that a machine has gone on with lately.
type loadedMemory struct {
	expiry *time.Timer

	// mu is held while the memory is being loaded.
	mu     sync.Mutex
	shared *sharedMemory
	failed bool // it is not tried again
}

// use returns the memory with a digest; nil if no other machine has gone on with it lately.
func (l *loadedMemories) use(digest string) *loadedMemory {
	l.mu.Lock()
	defer l.mu.Unlock()
	if found := l.all[digest]; found != nil {
		found.expiry.Reset(loadedKeep)
		return found
	}
	l.all[digest] = &loadedMemory{expiry: time.AfterFunc(loadedKeep, func() { l.forget(digest) })}
	return nil
}

// forget lets a memory go. The machines that use it keep it.
func (l *loadedMemories) forget(digest string) {
	l.mu.Lock()
	found := l.all[digest]
	delete(l.all, digest)
	l.mu.Unlock()
	if found == nil {
		return
	}
	found.expiry.Stop()
	found.mu.Lock()
	defer found.mu.Unlock()
	if found.shared != nil {
		found.shared.close()
	}
	found.shared, found.failed = nil, true // a machine may just have found it
}

// close lets all memories go.
func (l *loadedMemories) close() {
	l.mu.Lock()
	var all []string
	for digest := range l.all {
		all = append(all, digest)
	}
	l.mu.Unlock()
	for _, digest := range all {
		l.forget(digest)
	}
}

// open returns the memory that a machine is to go on with, with descriptors of its own; nil if the machine loads it by itself. start is that
// of the machine. m.files is held.
func (l *loadedMemories) open(ctx context.Context, m *machine, start *launch, saved *savedMemory) *sharedMemory {
	m.mu.Lock()
	isFork := m.def.Owner.Owed.Name
	m.mu.Unlock()
	if !isFork {
		return nil // no other machine has its memory
	}
	found := l.use(saved.SHA256)
	if found == nil {
		return nil
	}
	found.mu.Lock()
	defer found.mu.Unlock()
	if found.failed {
		return nil
	}
	var err error
	if found.shared == nil {
		found.shared, err = m.loadShared(ctx, *start, saved)
	}
	var opened *sharedMemory
	if err == nil {
		opened, err = found.shared.open()
	}
	if err != nil {
		found.failed = ctx.Err() == nil
		m.d.options.Log.Info("Machines cannot share the memory of a snapshot; each loads it", "machine", m.id.UID, "why", err.Error())
		return nil
	}
	return opened
}

// loadShared has a QEMU of its own load the saved memory of the machine into a file in memory, where it does not run. m.files is held.
func (m *machine) loadShared(ctx context.Context, l launch, saved *savedMemory) (_ *sharedMemory, err error) {
	s := &sharedMemory{}
	if s.memory, err = newMemory(l.MemoryBytes); err != nil {
		return nil, err
	}
	if s.devices, err = newMemory(0); err != nil {
		return nil, errors.Join(err, s.memory.Close())
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	l.Memory, l.FillsMemory = memoryPath(s.memory), true
	m.removeSockets()
	proc, err := m.d.processes.Start(m.d.newSpec(string(m.id.UID), m.dir, &l))
	if err != nil {
		return nil, fmt.Errorf("start QEMU: %w", err)
	}
	step("shared memory begun")
	err = m.fillShared(ctx, proc, saved, s)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), savedmemory.Timeout)
	defer cancel()
	if endErr := proc.Stop(ending, process.StopOptions{TermTimeout: monitorTimeout, KillTimeout: monitorTimeout}); endErr != nil {
		return nil, errors.Join(err, endErr)
	}
	if err = errors.Join(err, m.d.processes.Remove(string(m.id.UID))); err != nil {
		return nil, err
	}
	step("shared memory loaded")
	return s, errors.Join(seal(s.memory), seal(s.devices))
}

// fillShared has a QEMU load the saved memory, and save the state of its devices.
func (m *machine) fillShared(ctx context.Context, proc *process.Process, saved *savedMemory, s *sharedMemory) error {
	ctx, cancel := untilEnd(ctx, proc)
	defer cancel()
	dialing, cancelDial := context.WithTimeout(ctx, monitorStartTimeout)
	defer cancelDial()
	conn, err := dialTemplate(dialing, m.dir)
	if err != nil {
		return fmt.Errorf("QEMU does not answer: %w", err)
	}
	defer conn.Close()
	if err := saved.Load(ctx, conn, m.dir); err != nil {
		return err
	}
	return saveDevices(ctx, conn, s.devices)
}

// saveDevices makes a halted QEMU save the state of its devices, without the memory that is in a file.
func saveDevices(ctx context.Context, conn *qmp.Client, to *os.File) error {
	if err := ignoreShared(ctx, conn, true); err != nil {
		return err
	}
	if err := savedmemory.BeginSaving(ctx, conn, to); err != nil {
		return err
	}
	return savedmemory.AwaitSaved(ctx, conn)
}
