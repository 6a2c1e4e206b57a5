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
)

// Flags choose one instance of several on this machine.
type Flags struct {
	// DataDir is the directory that the user named; empty for the default.
	DataDir string
	// Ephemeral chooses the instance whose data goes when it stops.
	Ephemeral bool
}

// AddFlags adds --data-dir and --ephemeral to fs.
func (f *Flags) AddFlags(fs *pflag.FlagSet) {
	f.AddDataDir(fs)
	fs.BoolVar(&f.Ephemeral, "ephemeral", f.Ephemeral,
		"keep the control plane in a temporary directory: faster, not safe against a crash of the host, and removed when it stops")
}

// AddDataDir adds --data-dir to fs, for a command that has no use for --ephemeral.
func (f *Flags) AddDataDir(fs *pflag.FlagSet) {
	fs.Var(usage.NonEmpty(&f.DataDir), "data-dir",
		"`directory` of this control plane (default: keelson in $XDG_DATA_HOME, otherwise ~/.local/share/keelson)")
}

// Dir returns the data directory that the flags mean. It need not exist, but what exists must be ours.
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

// misread are characters that some program splits a path at: kwok its list of files at a comma, kubectl $KUBECONFIG at
// a colon, and others whatever is quoted or ends a line.
const misread = ",:\"\n\r"

// checkName refuses a path that some program would not take as one.
func checkName(dir string) error {
	if i := strings.IndexAny(dir, misread); i >= 0 {
		return fmt.Errorf("the data directory %q has %q in its path, which kwok or kubectl cannot handle: "+
			"choose another with --data-dir", dir, dir[i])
	}
	return nil
}

// checkOurs refuses a data directory that somebody else has made, as anybody can in a shared temporary directory. Also
// looking at it would do harm: its kubeconfig may name a program to run, and its lock a process to stop.
func checkOurs(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return nil // whoever needs it will say what is wrong with it
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

// ephemeralDir is a fixed place, so that down and status find what a crash has left.
func ephemeralDir() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("keelson-ephemeral-%d", os.Getuid()))
}

func defaultDir() (string, error) {
	// XDG Base Directory Specification: a relative path is to be ignored.
	if base := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "keelson"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("there is no home directory for the data (%w): set --data-dir", err)
	}
	return filepath.Join(home, ".local", "share", "keelson"), nil
}

// Command returns what to type for a command on the instance of dir, such as "keelson down --data-dir /some/where". It
// names the directory unless the command finds it without.
func Command(name, dir string) string {
	command := "keelson " + name
	if standard, err := defaultDir(); err == nil && dir == standard {
		return command
	}
	if dir == ephemeralDir() {
		return command + " --ephemeral"
	}
	return command + " --data-dir " + Quote(dir)
}

// Quote returns s so that a shell reads it as one word.
func Quote(s string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-"
	if s != "" && strings.Trim(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// markFile marks a data directory: only what has one is ever written to or deleted as a whole, so that a slip of
// --data-dir does no harm.
const markFile = "keelson-data.txt"

const mark = `This directory belongs to keelson: the certificates, the objects, the logs and the
processes of one control plane. Do not change what is in it. "keelson status", with
--data-dir and this directory, says what runs of it; "keelson down" stops it, and
with --delete-data deletes it.
`

// Secure creates a data directory and makes sure that it is ours: in a shared temporary directory somebody else may
// have made it first, and what the user named may be something else altogether. With ephemeral, which deletes the
// directory in the end, it must not hold objects that were to be kept.
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
	return nil
}

// claim marks an empty directory as a data directory. One with anything else in it is refused.
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

func isMarked(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, markFile))
	return err == nil
}

// Remove deletes a data directory of which nothing runs any more. One that is gone already is no error; one that
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
	var errs []error
	for _, entry := range entries {
		if entry.Name() != markFile { // it goes last, so that a deletion that was cut short can be repeated
			errs = append(errs, os.RemoveAll(filepath.Join(dir, entry.Name())))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}
