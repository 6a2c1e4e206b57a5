package savedmemory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/keelson-dev/keelson/internal/atomicfile"
)

const (
	// File is the saved memory of a machine, compressed. It is complete: it gets this name when it is.
	File = "memory.zst"
	// Part is one that is being written.
	Part = File + ".part"
	// Timeout is how long QEMU may take for any step of saving or loading its memory, on a busy host: to read or write a part
	// of it, to write the cache of its disks, to end.
	Timeout = 30 * time.Second
)

// create creates the file of saved memory, which Keep makes durable.
func create(dir string) (*os.File, error) {
	part := filepath.Join(dir, Part)
	if err := os.RemoveAll(part); err != nil {
		return nil, err
	}
	return os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// write compresses a stream into a file. It calls count with the number of bytes so far, and fails if that does.
func write(ctx context.Context, file, stream *os.File, count func(int64) error) (size int64, digest string, err error) {
	sum := sha256.New()
	counted := &countingWriter{to: io.MultiWriter(&checkedFile{file, file.Name()}, sum), count: count}
	err = compress(ctx, counted, stream)
	Step("memory compressed")
	return counted.n, hex.EncodeToString(sum.Sum(nil)), err
}

// Keep makes the file of write the saved memory, durably. If it fails, there is none.
func Keep(dir string) error {
	err := atomicfile.Place(filepath.Join(dir, Part), filepath.Join(dir, File))
	if err != nil {
		Remove(dir)
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
		_ = encoder.Close() // it has the same error
		return err
	}
	return encoder.Close()
}

// read decompresses the file of saved memory into a stream. Its error is an UnusableError if the file is not the one
// that was saved.
func (m *Memory) read(ctx context.Context, dir string, stream *os.File) error {
	file, err := os.Open(filepath.Join(dir, File))
	if errors.Is(err, fs.ErrNotExist) {
		return Unusable("its file %s is missing", File)
	}
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() != m.Size {
		return Unusable("its file %s has %d bytes instead of %d", File, info.Size(), m.Size)
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
	if hex.EncodeToString(sum.Sum(nil)) != m.SHA256 {
		return Unusable("its file %s is damaged: it has another SHA-256 digest than it had", File)
	}
	return copyErr
}

// Remove removes the saved memory of the machine in dir. What is left is removed by the next manager.
func Remove(dir string) {
	for _, name := range []string{File, Part} {
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
	deadline := time.Now().Add(Timeout)
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
