package diskbackup

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// copyChunk is the number of bytes that are copied between two looks at the context.
const copyChunk = 64 << 20

// CopySparse copies a file to another one, which it replaces, without its holes, durably. progress is called in quarters.
func CopySparse(ctx context.Context, from, to string, progress func(percent int64)) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer target.Close()
	info, err := source.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	if err := target.Truncate(size); err != nil {
		return err
	}
	reported := int64(0)
	for at := int64(0); at < size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		begin, err := unix.Seek(int(source.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // the rest is a hole
		}
		if err != nil {
			return &fs.PathError{Op: "seek", Path: from, Err: err}
		}
		end, err := unix.Seek(int(source.Fd()), begin, unix.SEEK_HOLE)
		if err != nil {
			return &fs.PathError{Op: "seek", Path: from, Err: err}
		}
		at = min(end, begin+copyChunk)
		if err := copyRange(source, target, begin, at-begin); err != nil {
			return err
		}
		if done := at * 100 / size / 25 * 25; done > reported {
			reported = done
			progress(done)
		}
	}
	return errors.Join(target.Sync(), target.Close())
}

// copyRange copies a part of a file to the same place of another one. Between files, io.CopyN lets the kernel do it.
func copyRange(source, target *os.File, at, length int64) error {
	if _, err := source.Seek(at, io.SeekStart); err != nil {
		return err
	}
	if _, err := target.Seek(at, io.SeekStart); err != nil {
		return err
	}
	_, err := io.CopyN(target, source, length)
	return err
}
