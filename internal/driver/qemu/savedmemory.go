package qemu

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

const (
	// memoryFile is the saved memory of a machine that is asleep, compressed. It is complete: it gets this name when it is.
	memoryFile = "memory.zst"
	// memoryPart is one that is being written.
	memoryPart = memoryFile + ".part"
	// streamTimeout is how long QEMU may take for any step of saving or loading its memory, on a busy host: to read or write a part
	// of it, to write the cache of its disks, to end.
	streamTimeout = 30 * time.Second
)

// savedMemory describes the saved memory of a machine that is asleep, and what it fits. The definition of a machine has it
// from when the file is complete until just before the machine goes on. As long as it is there, no QEMU of the machine runs
// the guest: one that exists is about to end.
type savedMemory struct {
	backend.SleepOptions

	// Run is the run that was saved.
	Run string    `json:"run"`
	At  time.Time `json:"at"`
	// Size and SHA256 are those of the file.
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	// QEMU, CPU and Shape are the version of QEMU, the model of the processors, and the devices. The memory fits no others.
	QEMU  string `json:"qemu"`
	CPU   string `json:"cpu"`
	Shape string `json:"shape"`
	// Disks and DIMMs were plugged.
	Disks []savedDisk `json:"disks,omitempty"`
	DIMMs []savedDIMM `json:"dimms,omitempty"`
	// Files are the files that the guest writes to, by name. The guest has parts of them in its memory, so they have to be
	// as it left them.
	Files map[string]fileStamp `json:"files,omitempty"`
}

// savedDisk is a plugged disk of spec.disks, and its address on the bus.
type savedDisk struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

// savedDIMM is plugged memory.
type savedDIMM struct {
	ID      string `json:"id"`
	Backend string `json:"backend"`
	Size    int64  `json:"size"`
	Slot    int64  `json:"slot"`
	Address int64  `json:"address"`
}

// fileStamp changes when a file does.
type fileStamp struct {
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
}

// unusableError is why saved memory cannot be used, now and later.
type unusableError struct{ why string }

func (e *unusableError) Error() string { return e.why }

func unusable(format string, arguments ...any) error {
	return &unusableError{fmt.Sprintf(format, arguments...)}
}

// size returns the size of the file; 0 if there is none.
func (s *savedMemory) size() int64 {
	if s == nil {
		return 0
	}
	return s.Size
}

// countSaved counts the bytes of the saved memory of the machine so far. It fails if that of all machines exceeds the limit.
func (m *machine) countSaved(size int64) error {
	m.savedBytes.Store(size)
	return m.d.checkSaved()
}

// checkSaved fails if the saved memory of all machines and snapshots exceeds the limit.
func (d *Driver) checkSaved() error {
	limit := d.options.MaxSavedBytes
	if limit == 0 {
		return nil
	}
	var total int64
	for _, each := range d.all() {
		total += each.savedBytes.Load()
	}
	d.mu.Lock()
	for _, each := range d.snapshots {
		total += each.savedBytes.Load()
	}
	d.mu.Unlock()
	if total > limit {
		return fmt.Errorf("the machines of this host that are asleep, and the snapshots with memory, would need more than the %d bytes that "+
			"--vm-state-max allows: wake or delete a machine, delete a snapshot, or increase the limit", limit)
	}
	return nil
}

// check returns an unusableError if the memory does not fit a QEMU of that version, processors and shape.
func (s *savedMemory) check(version, cpu, shape string) error {
	switch {
	case version != "" && s.QEMU != version:
		return unusable("QEMU %s saved it, and this is %s", s.QEMU, version)
	case s.CPU != cpu:
		return unusable("it was saved with the processors %q, and these are %q", s.CPU, cpu)
	case s.Shape != shape:
		return unusable("this version of Keelson gives the machine other devices")
	}
	return nil
}

// stampFiles makes the files durable and returns their stamps, by the names relative to dir.
func stampFiles(dir string, paths []string) (map[string]fileStamp, error) {
	stamps := map[string]fileStamp{}
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		// Otherwise the file may be older after a power cut than this says.
		err = file.Sync()
		info, statErr := file.Stat()
		if err := errors.Join(err, statErr, file.Close()); err != nil {
			return nil, err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return nil, err
		}
		stamps[name] = fileStamp{info.Size(), info.ModTime().UTC()}
	}
	return stamps, nil
}

// checkFiles returns an unusableError unless the machine in dir has exactly the files that it had, unchanged.
func (s *savedMemory) checkFiles(dir string, paths []string) error {
	if len(paths) != len(s.Files) {
		return unusable("the machine has other disks than it had")
	}
	for _, path := range paths {
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		before, known := s.Files[name]
		info, err := os.Stat(path)
		switch {
		case !known, errors.Is(err, fs.ErrNotExist):
			return unusable("the machine has other disks than it had")
		case err != nil:
			return err
		case info.Size() != before.Size || !info.ModTime().Equal(before.Modified):
			return unusable("the file %s has changed since", filepath.Base(name))
		}
	}
	return nil
}

// writeMemory compresses a stream into the file of saved memory, which keepMemory makes durable. If it fails, there is none. It calls
// count with the number of bytes so far, and fails if that does.
func writeMemory(ctx context.Context, dir string, stream *os.File, count func(int64) error) (size int64, digest string, err error) {
	part := filepath.Join(dir, memoryPart)
	if err := os.RemoveAll(part); err != nil {
		return 0, "", err
	}
	file, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, "", err
	}
	sum := sha256.New()
	counted := &countingWriter{to: io.MultiWriter(&checkedFile{file, part}, sum), count: count}
	err = compress(ctx, counted, stream)
	step("memory compressed")
	if err = errors.Join(err, file.Close()); err != nil {
		removeMemory(dir)
		return 0, "", err
	}
	return counted.n, hex.EncodeToString(sum.Sum(nil)), nil
}

// keepMemory makes the file of writeMemory the saved memory, durably. If it fails, there is none.
func keepMemory(dir string) error {
	part := filepath.Join(dir, memoryPart)
	err := atomicfile.Fault("sync", part)
	if err == nil {
		err = syncFile(part)
	}
	if err == nil {
		err = os.Rename(part, filepath.Join(dir, memoryFile))
	}
	if err == nil {
		err = atomicfile.SyncDir(dir)
	}
	if err != nil {
		removeMemory(dir)
	}
	return err
}

// compress copies a stream of QEMU.
func compress(ctx context.Context, to io.Writer, stream *os.File) error {
	encoder, err := zstd.NewWriter(to, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return err
	}
	if _, err := io.CopyBuffer(encoder, &timedStream{ctx, stream}, make([]byte, 1<<20)); err != nil {
		return errors.Join(err, encoder.Close())
	}
	return encoder.Close()
}

// readMemory decompresses the file of saved memory into a stream. Its error is an unusableError if the file is not the one
// that was saved.
func (s *savedMemory) readMemory(ctx context.Context, dir string, stream *os.File) error {
	file, err := os.Open(filepath.Join(dir, memoryFile))
	if errors.Is(err, fs.ErrNotExist) {
		return unusable("its file %s is missing", memoryFile)
	}
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() != s.Size {
		return unusable("its file %s has %d bytes instead of %d", memoryFile, info.Size(), s.Size)
	}
	sum := sha256.New()
	hashed := io.TeeReader(file, sum)
	decoder, err := zstd.NewReader(hashed)
	if err != nil {
		return err
	}
	defer decoder.Close()
	_, copyErr := io.CopyBuffer(&timedStream{ctx, stream}, onlyReader{decoder}, make([]byte, 1<<20))
	decoder.Close() // it reads ahead
	if _, err := io.Copy(io.Discard, hashed); err != nil {
		return err
	}
	// This comes first: a damaged file may be the reason for the error.
	if hex.EncodeToString(sum.Sum(nil)) != s.SHA256 {
		return unusable("its file %s is damaged: it has another SHA-256 digest than it had", memoryFile)
	}
	return copyErr
}

// removeMemory removes the saved memory of the machine in dir. What is left is removed by the next manager.
func removeMemory(dir string) {
	for _, name := range []string{memoryFile, memoryPart} {
		_ = os.Remove(filepath.Join(dir, name))
	}
}

// countingWriter counts the bytes that it writes, unless count objects to their number.
type countingWriter struct {
	to    io.Writer
	count func(int64) error
	n     int64
}

// Write implements io.Writer.
func (w *countingWriter) Write(data []byte) (int, error) {
	if err := w.count(w.n + int64(len(data))); err != nil {
		return 0, err
	}
	n, err := w.to.Write(data)
	w.n += int64(n)
	return n, err
}

// checkedFile is a file whose writes tests can make fail.
type checkedFile struct {
	file *os.File
	path string
}

// Write implements io.Writer.
func (f *checkedFile) Write(data []byte) (int, error) {
	if err := atomicfile.Fault("write", f.path); err != nil {
		return 0, err
	}
	return f.file.Write(data)
}

// onlyReader hides io.WriterTo, so that io.CopyBuffer uses its buffer.
type onlyReader struct{ io.Reader }

// timedStream is one end of a pipe to QEMU. Each read and write has a timeout, and they end with the deadline of the context.
type timedStream struct {
	ctx    context.Context
	stream *os.File
}

func (s *timedStream) prepare() error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	deadline := time.Now().Add(streamTimeout)
	if end, ok := s.ctx.Deadline(); ok && end.Before(deadline) {
		deadline = end
	}
	return s.stream.SetDeadline(deadline)
}

// Read implements io.Reader.
func (s *timedStream) Read(data []byte) (int, error) {
	if err := s.prepare(); err != nil {
		return 0, err
	}
	return s.stream.Read(data)
}

// Write implements io.Writer.
func (s *timedStream) Write(data []byte) (int, error) {
	if err := s.prepare(); err != nil {
		return 0, err
	}
	return s.stream.Write(data)
}

// hostCPU identifies the processors of this host, on which the model "host" depends.
func hostCPU() string {
	raw, err := os.ReadFile(cpuInfo)
	if err != nil {
		return "unknown"
	}
	first, _, _ := bytes.Cut(raw, []byte("\n\n"))
	var name, flags string
	for line := range strings.Lines(string(first)) {
		key, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "model name":
			name = strings.TrimSpace(value)
		case "flags", "Features":
			all := strings.Fields(value)
			slices.Sort(all)
			flags = strings.Join(all, " ")
		}
	}
	sum := sha256.Sum256([]byte(flags))
	return fmt.Sprintf("%s, features %s", name, hex.EncodeToString(sum[:4]))
}
