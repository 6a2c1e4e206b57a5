package process

import (
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// rotateLog keeps the log below its limit as long as the shim lives. A check costs one fstat and no memory.
func rotateLog(log *os.File, rec record) {
	fd := int(log.Fd())
	var info syscall.Stat_t
	for {
		time.Sleep(rec.LogCheck)
		if err := syscall.Fstat(fd, &info); err == nil && info.Size >= rec.LogMaxBytes {
			rotate(rec.Log, rec.LogKeep)
		}
	}
}

// rotate copies path to path.1, which becomes path.2 and so on, and truncates it. The writer keeps its file, opened
// with O_APPEND, and continues at the new end. Output between the copy and the truncation is lost. If the copy fails
// (a full disk), the log is truncated anyway, because the purpose of the limit is to free space.
func rotate(path string, keep int) {
	name := func(i int) string { return fmt.Sprintf("%s.%d", path, i) }
	for i := keep - 1; i >= 1; i-- {
		_ = os.Rename(name(i), name(i+1)) // there may be none yet
	}
	if err := copyFile(path, name(1)); err != nil {
		_ = os.Remove(name(1))
	}
	_ = os.Truncate(path, 0) // retried at the next check
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer closeQuietly(in)
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer closeQuietly(out)
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Close()
}
