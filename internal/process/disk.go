package process

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// errNotDir is what the system says about a path below a plain file.
const errNotDir = syscall.ENOTDIR

// step is called at every point where being killed makes a difference, and fault before every write. The crash tests
// replace them; they do nothing otherwise.
var (
	step  = func(string) {}
	fault = func(operation, path string) error { return nil }
)

// writeFile replaces path by v as JSON so that a reader sees the old file or the new one, whole. With durable it also
// survives a power cut once the call has returned. At an error nothing of the new file is left.
func writeFile(path string, v any, durable bool) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	temp := path + ".tmp"
	if err := writeTemp(temp, append(data, '\n'), durable); err != nil {
		_ = os.Remove(temp) // the write error is the one to report, and it names the file
		return err
	}
	if err := publish(temp, path, durable); err != nil {
		_ = os.Remove(temp)
		return err
	}
	return nil
}

// writeTemp writes data to path. A file that is there already is overwritten in place, so that the space it has is
// used again: that is how exit.json is written on a full disk.
func writeTemp(path string, data []byte, durable bool) error {
	if err := fault("create", path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer closeQuietly(f)
	if err := fault("write", path); err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Truncate(int64(len(data))); err != nil {
		return err
	}
	if durable {
		if err := fault("sync", path); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
	}
	return f.Close()
}

// publish gives a written file its name.
func publish(temp, path string, durable bool) error {
	if err := fault("rename", path); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	if !durable {
		return nil
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes the names in dir durable.
func syncDir(dir string) error {
	if err := fault("syncdir", dir); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer closeQuietly(d)
	return d.Sync()
}

// closeQuietly closes a file that was only read, or of which the writing has failed or was closed with a check before:
// its error says nothing new.
func closeQuietly(c io.Closer) { _ = c.Close() }
