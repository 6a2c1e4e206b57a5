package system

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

func overflowed(err error) bool {
	return errors.Is(err, unix.ENOBUFS)
}

// RescanPCI makes the kernel look for devices that nobody has announced. When it returns, those that have a loaded driver
// are there.
func RescanPCI() error {
	if err := os.WriteFile("/sys/bus/pci/rescan", []byte("1"), 0); err != nil {
		return fmt.Errorf("look for PCI devices: %w", err)
	}
	return nil
}

// SetOnline puts a CPU or a block of memory to use that was plugged in and is not
// used yet. directory is its folder in /sys. It says whether there was something to do.
func SetOnline(directory string) (bool, error) {
	file, value := filepath.Join(directory, "online"), "1"
	if strings.HasPrefix(filepath.Base(directory), "memory") {
		// Movable memory can be taken out again, unless the kernel sits in it.
		file, value = filepath.Join(directory, "state"), "online_movable"
	}
	was, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // the first CPU cannot be switched
	}
	if err != nil {
		return false, err
	}
	switch strings.TrimSpace(string(was)) {
	case "1", "online", "going-offline":
		return false, nil
	}
	err = os.WriteFile(file, []byte(value), 0)
	if errors.Is(err, unix.EINVAL) && value != "1" {
		err = os.WriteFile(file, []byte("online"), 0)
	}
	if err != nil {
		return false, fmt.Errorf("putting %s online: %w", filepath.Base(directory), err)
	}
	return true, nil
}
