// Package savedmemory saves the memory of a QEMU in a file, and loads it into another one. The drivers qemu and pod put machines to
// sleep with it. It knows nothing of either: they record that a machine is asleep, and that its memory is used.
package savedmemory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

// Step is called at each point where a crash makes a difference. Crash tests replace it.
var Step = func(string) {}

// Memory describes the saved memory of a machine, and what it fits.
type Memory struct {
	// At is when it was saved.
	At time.Time `json:"at"`
	// Size and SHA256 are those of the file.
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	// QEMU, CPU and Shape are the version of QEMU, the model of the processors, and the devices. The memory fits no others.
	QEMU  string `json:"qemu"`
	CPU   string `json:"cpu"`
	Shape string `json:"shape"`
	// Files are the files that the guest writes to, by name. The guest has parts of them in its memory, so they have to be
	// as it left them.
	Files map[string]FileStamp `json:"files,omitempty"`
}

// FileStamp changes when a file does.
type FileStamp struct {
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
}

// UnusableError is why saved memory cannot be used, now and later.
type UnusableError struct{ Why string }

// Error implements error.
func (e *UnusableError) Error() string { return e.Why }

// Unusable returns an UnusableError.
func Unusable(format string, arguments ...any) error {
	return &UnusableError{fmt.Sprintf(format, arguments...)}
}

// IsUnusable reports whether saved memory cannot be used.
func IsUnusable(err error) bool {
	why := (*UnusableError)(nil)
	return errors.As(err, &why)
}

// Check returns an UnusableError if the memory does not fit a QEMU of that version, processors and shape. An empty version is any.
func (m *Memory) Check(version, cpu, shape string) error {
	switch {
	case version != "" && m.QEMU != version:
		return Unusable("QEMU %s saved it, and this is %s", m.QEMU, version)
	case m.CPU != cpu:
		return Unusable("it was saved with the processors %q, and these are %q", m.CPU, cpu)
	case m.Shape != shape:
		return Unusable("this version of Keelson gives the machine other devices")
	}
	return nil
}

// Stamp makes files durable and returns their stamps, by the names relative to dir.
func Stamp(dir string, paths []string) (map[string]FileStamp, error) {
	stamps := map[string]FileStamp{}
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
		stamps[name] = FileStamp{info.Size(), info.ModTime().UTC()}
	}
	return stamps, nil
}

// CheckFiles returns an UnusableError unless the machine in dir has exactly the files that it had, unchanged.
func (m *Memory) CheckFiles(dir string, paths []string) error {
	if len(paths) != len(m.Files) {
		return Unusable("the machine has other disks than it had")
	}
	for _, path := range paths {
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		before, known := m.Files[name]
		info, err := os.Stat(path)
		switch {
		case !known, errors.Is(err, fs.ErrNotExist):
			return Unusable("the machine has other disks than it had")
		case err != nil:
			return err
		case info.Size() != before.Size || !info.ModTime().Equal(before.Modified):
			return Unusable("the file %s has changed since", filepath.Base(name))
		}
	}
	return nil
}

// Version returns the version of a QEMU.
func Version(ctx context.Context, conn *qmp.Client) (string, error) {
	var version struct {
		QEMU    struct{ Major, Minor, Micro int }
		Package string
	}
	if err := conn.Run(ctx, "query-version", nil, &version); err != nil {
		return "", err
	}
	v := version.QEMU
	return strings.TrimSpace(fmt.Sprintf("%d.%d.%d %s", v.Major, v.Minor, v.Micro, version.Package)), nil
}
