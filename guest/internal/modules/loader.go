package modules

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Loader loads modules into the running kernel, each once.
type Loader struct {
	table Table
	// load puts one file of Directory into the kernel; tests replace it.
	load func(file string) error

	mu     sync.Mutex
	loaded map[string]bool
}

// NewLoader reads the table of the guest.
func NewLoader() (*Loader, error) {
	file, err := os.Open(filepath.Join(Directory, TableFile))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	table, err := ReadTable(file)
	if err != nil {
		return nil, err
	}
	return &Loader{table: table, load: insert, loaded: map[string]bool{}}, nil
}

// insert hands a module to the kernel. That it is there already is no error.
func insert(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("loading %s: %w", file, err)
	}
	return nil
}

// Load loads the named module and what it needs. A module that the image does not
// have counts as built into the kernel.
func (l *Loader) Load(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.table.LoadOrder(name) {
		if l.loaded[m] {
			continue
		}
		if err := l.load(filepath.Join(Directory, m+".ko")); err != nil {
			return err
		}
		l.loaded[m] = true
	}
	return nil
}

// LoadFor loads what drives a device with this alias; nothing does for most devices.
func (l *Loader) LoadFor(alias string) error {
	var errs []error
	for _, name := range l.table.Drivers(alias) {
		errs = append(errs, l.Load(name))
	}
	return errors.Join(errs...)
}
