package qemu

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/internal/sandbox"
)

// sharedMemory is a template in the memory of the host, from which machines start. Each maps the memory of the guest
// copy-on-write: they share what none of them has changed. Both files are sealed, so that nobody can change them, not even a
// QEMU that has one open for writing.
type sharedMemory struct {
	// memory is that of the guest, and devices is the state of its devices.
	memory, devices *os.File
}

// close lets the memory go. The QEMUs that use it keep it.
func (s *sharedMemory) close() {
	_ = errors.Join(s.memory.Close(), s.devices.Close()) // there is nothing that could be lost
}

// open returns the same memory with descriptors of its own.
func (s *sharedMemory) open() (*sharedMemory, error) {
	memory, err := os.OpenFile(sandbox.FDPath(int(s.memory.Fd())), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	devices, err := os.Open(sandbox.FDPath(int(s.devices.Fd())))
	if err != nil {
		return nil, errors.Join(err, memory.Close())
	}
	return &sharedMemory{memory: memory, devices: devices}, nil
}

// memoryPath is the path of a file of newMemory for other processes, as long as it is open in this one.
func memoryPath(file *os.File) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), file.Fd()) }

// newMemory returns a file in memory.
func newMemory(size int64) (*os.File, error) {
	fd, err := unix.MemfdCreate("keelson-template", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	file := os.NewFile(uintptr(fd), "keelson-template")
	if err := file.Truncate(size); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// seal makes a file of newMemory one that nobody can change.
func seal(file *os.File) error {
	const all = unix.F_SEAL_WRITE | unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, all); err != nil {
		return fmt.Errorf("seal a file in memory: %w", err)
	}
	return nil
}

// readShared reads a template from the disk. It fails if that is not the one with this digest.
func readShared(memory, devices, digest string) (_ *sharedMemory, err error) {
	from, err := os.Open(memory)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return nil, err
	}
	state, err := os.ReadFile(devices)
	if err != nil {
		return nil, err
	}
	s := &sharedMemory{}
	if s.memory, err = newMemory(info.Size()); err != nil {
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
	_, found, err := copyMemory(s.memory, from, state)
	if err != nil {
		return nil, err
	}
	if found != digest {
		return nil, errors.New("its memory is damaged: it has another SHA-256 digest than it had")
	}
	if _, err := s.devices.Write(state); err != nil {
		return nil, err
	}
	return s, errors.Join(seal(s.memory), seal(s.devices))
}

// memoryPage is the unit in which memory is copied: what is zero in all of it is left out.
const memoryPage = 4096

// copyMemory copies the pages that are not zero to a file that has none. It returns their size in bytes with that of the state of
// the devices, and the digest of both.
func copyMemory(to, from *os.File, devices []byte) (size int64, digest string, err error) {
	info, err := from.Stat()
	if err != nil {
		return 0, "", err
	}
	if err := to.Truncate(info.Size()); err != nil {
		return 0, "", err
	}
	sum := sha256.New()
	for start := int64(0); start < info.Size(); {
		data, err := unix.Seek(int(from.Fd()), start, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // the rest is zero
		}
		if err != nil {
			return 0, "", err
		}
		if start, err = unix.Seek(int(from.Fd()), data, unix.SEEK_HOLE); err != nil {
			return 0, "", err
		}
		copied, err := copyPages(to, from, data/memoryPage*memoryPage, start, sum)
		if err != nil {
			return 0, "", err
		}
		size += copied
	}
	sum.Write(devices)
	return size + int64(len(devices)), hex.EncodeToString(sum.Sum(nil)), nil
}

// copyPages copies the pages that are not zero of a part of a file, and adds them to a digest with their places.
func copyPages(to io.WriterAt, from io.ReaderAt, start, end int64, sum hash.Hash) (size int64, err error) {
	var zero [memoryPage]byte
	buffer := make([]byte, 1<<20)
	for ; start < end; start += int64(len(buffer)) {
		n, err := from.ReadAt(buffer[:min(int64(len(buffer)), end-start)], start)
		if err != nil && !errors.Is(err, io.EOF) {
			return size, err
		}
		for at := 0; at < n; at += memoryPage {
			page := buffer[at:min(at+memoryPage, n)]
			if bytes.Equal(page, zero[:len(page)]) {
				continue
			}
			place := start + int64(at)
			_ = binary.Write(sum, binary.BigEndian, place) // a digest takes everything
			sum.Write(page)
			if _, err := to.WriteAt(page, place); err != nil {
				return size, err
			}
			size += int64(len(page))
		}
	}
	return size, nil
}
