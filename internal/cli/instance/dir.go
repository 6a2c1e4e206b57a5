package instance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/node"
)

// Flags select one of several instances on this machine.
type Flags struct {
	// DataDir is the data directory; empty for the default.
	DataDir string
	// Ephemeral selects the instance whose data is deleted when it stops.
	Ephemeral bool
}

// AddFlags adds --data-dir and --ephemeral to fs.
func (f *Flags) AddFlags(fs *pflag.FlagSet) { addFlags(fs, &f.DataDir, &f.Ephemeral) }

func addFlags(fs *pflag.FlagSet, dataDir *string, ephemeral *bool) {
	addDataDir(fs, dataDir)
	fs.BoolVar(ephemeral, "ephemeral", *ephemeral,
		"keep the control plane in a temporary directory: faster, not safe against a crash of the host, and removed when it stops")
}

// AddDataDir adds --data-dir to fs, for a command without --ephemeral.
func (f *Flags) AddDataDir(fs *pflag.FlagSet) { addDataDir(fs, &f.DataDir) }

func addDataDir(fs *pflag.FlagSet, dataDir *string) {
	fs.Var(usage.NonEmpty(dataDir), "data-dir",
		"`directory` of this control plane (default: keelson in $XDG_DATA_HOME, otherwise ~/.local/share/keelson)")
}

// Dir returns the data directory. It need not exist, but an existing one must belong to the user.
func (f *Flags) Dir() (string, error) {
	dir, err := f.dir()
	if err != nil {
		return "", err
	}
	return dir, checkOurs(dir)
}

func (f *Flags) dir() (string, error) {
	switch {
	case f.DataDir != "":
		dir, err := filepath.Abs(f.DataDir)
		if err != nil {
			return "", err
		}
		return dir, checkName(dir)
	case f.Ephemeral:
		return ephemeralDir(), nil
	default:
		return defaultDir()
	}
}

// misread are characters that some programs split a path at: kwok its file list at commas, kubectl
// $KUBECONFIG at colons, others at quotes and line ends.
const misread = ",:\"\n\r"

// checkName rejects a path that some programs would misread.
func checkName(dir string) error {
	if i := strings.IndexAny(dir, misread); i >= 0 {
		return fmt.Errorf("the data directory %q has %q in its path, which kwok or kubectl cannot handle: "+
			"choose another with --data-dir", dir, dir[i])
	}
	return nil
}

// checkOurs rejects a data directory of another user, which anyone can create in a shared temporary
// directory. Even reading it would be dangerous: its kubeconfig may name a program to run, and its
// lock a process to stop.
func checkOurs(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return nil // the user of the directory reports what is wrong with it
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("the data directory %s is a symbolic link: set --data-dir to its target", dir)
	case !info.IsDir():
		return fmt.Errorf("the data directory %s is not a directory: choose another with --data-dir", dir)
	case !ok || int(stat.Uid) != os.Getuid():
		return fmt.Errorf("the data directory %s belongs to another user: choose another with --data-dir", dir)
	}
	return nil
}

// ephemeralDir is a fixed path, so that down and status find the leftovers of a crash.
func ephemeralDir() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("keelson-ephemeral-%d", os.Getuid()))
}

func defaultDir() (string, error) {
	// XDG Base Directory Specification: ignore relative paths.
	if base := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "keelson"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("there is no home directory for the data (%w): set --data-dir", err)
	}
	return filepath.Join(home, ".local", "share", "keelson"), nil
}

// Command returns the command line for a command on the instance of dir, such as "keelson down
// --data-dir /some/where". It omits the directory if it is the default.
func Command(name, dir string) string {
	command := "keelson " + name
	if standard, err := defaultDir(); err == nil && dir == standard {
		return command
	}
	if dir == ephemeralDir() {
		return command + " --ephemeral"
	}
	return command + " --data-dir " + usage.Quote(dir)
}

// markFile marks a data directory: only marked directories are ever modified or deleted as a whole,
// so that a mistyped --data-dir does no harm.
const markFile = "keelson-data.txt"

const mark = `This directory belongs to keelson. It contains the certificates, objects, logs and
process records of one control plane. Do not modify it. With --data-dir and this
directory, "keelson status" shows what is running, "keelson down" stops it, and
"keelson down --delete-data" deletes it.
`

// Secure creates a data directory, or checks that an existing one belongs to Keelson: in a shared
// temporary directory another user may have created it, and --data-dir may be mistyped. With
// ephemeral, which deletes the directory in the end, it must not contain objects to keep.
func Secure(ctx context.Context, dir string, ephemeral bool) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create the data directory: %w; choose another with --data-dir", err)
	}
	if err := checkOurs(dir); err != nil {
		return err
	}
	if err := claim(dir); err != nil {
		return err
	}
	if ephemeral {
		report, err := controlplane.Inspect(ctx, dir)
		if err != nil {
			return err
		}
		if report.Exists && !report.Ephemeral {
			return fmt.Errorf("the objects in %s are persistent, and --ephemeral would delete them: "+
				"omit --ephemeral, or choose another directory with --data-dir", dir)
		}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("close the data directory to others: %w", err)
	}
	record(dir)
	return nil
}

// claim marks an empty directory as a data directory, and rejects any other.
func claim(dir string) error {
	if isMarked(dir) {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read the data directory: %w", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s is not a data directory of keelson: it contains other files, such as %s; choose another with --data-dir",
			dir, entries[0].Name())
	}
	if err := os.WriteFile(filepath.Join(dir, markFile), []byte(mark), 0o600); err != nil {
		return fmt.Errorf("write to the data directory: %w; choose another with --data-dir", err)
	}
	return nil
}

func isMarked(dir string) bool { return exists(filepath.Join(dir, markFile)) }

// Remove deletes the data directory of a stopped instance. A missing one is no error; one that
// Secure has not prepared is left alone.
func Remove(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !isMarked(dir) {
		return fmt.Errorf("%s is not a data directory of keelson, because it has no %s: delete it by hand if you do not need it", dir, markFile)
	}
	if err := node.RemoveData(node.Dir(dir, 0)); err != nil {
		return err
	}
	var errs []error
	for _, entry := range entries {
		if entry.Name() != markFile { // it goes last, so that an interrupted deletion can be repeated
			errs = append(errs, os.RemoveAll(filepath.Join(dir, entry.Name())))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}
