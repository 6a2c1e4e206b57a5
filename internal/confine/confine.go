// Package confine opens files that users of the API name, in certain directories of the host and nowhere else.
//
// Users who may write to those directories are trusted; users who may only name files in them are not. Symbolic links are followed as
// long as they stay inside, as in os.Root, so the file that is opened is the one that was checked.
package confine

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"
)

// Dirs are the directories, as absolute paths, below which files may be named. None means that no file may be named; a
// root directory among them, that any may, through any link.
type Dirs []string

// Anywhere are the Dirs of an API whose users are all trusted, such as one with a single user.
var Anywhere = Dirs{"/"}

var (
	// ErrOutside means that a path leads out of all directories.
	ErrOutside = errors.New("it is in none of the directories that users may name files in")
	// ErrForm means that a path cannot be checked.
	ErrForm = errors.New("it must be an absolute path without control characters")
	// ErrKind means that the path is not a regular file.
	ErrKind = errors.New("it is not a regular file")
	// ErrSize means that a file is larger than what is read of it.
	ErrSize = errors.New("it is too large")
)

// Validate returns an error if one of the directories is no absolute path.
func (d Dirs) Validate() error {
	for _, dir := range d {
		if !filepath.IsAbs(dir) {
			return fmt.Errorf("%q is no absolute path", dir)
		}
	}
	return nil
}

// String names the directories, for people.
func (d Dirs) String() string {
	if len(d) == 0 {
		return "none"
	}
	return strings.Join(d, ", ")
}

func (d Dirs) isAnywhere() bool {
	for _, dir := range d {
		if filepath.Clean(dir) == "/" {
			return true
		}
	}
	return false
}

// Check returns the path in its shortest form if it names a file in the directories, whether or not there is one. The
// error is an ErrOutside or an ErrForm.
func (d Dirs) Check(path string) (string, error) {
	clean, _, _, err := d.locate(path)
	return clean, err
}

// locate returns the path, and in which directory it is where.
func (d Dirs) locate(path string) (clean, dir, inside string, err error) {
	if !filepath.IsAbs(path) || strings.ContainsFunc(path, unicode.IsControl) {
		return "", "", "", ErrForm
	}
	clean = filepath.Clean(path)
	for _, dir := range d {
		inside, err := filepath.Rel(dir, clean)
		if err == nil && inside != "." && filepath.IsLocal(inside) {
			return clean, dir, inside, nil
		}
	}
	return "", "", "", ErrOutside
}

// in calls do with the directory that a path is in, as one that nothing leads out of.
func (d Dirs) in(path string, do func(root *os.Root, inside string) error) error {
	_, dir, inside, err := d.locate(path)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	err = do(root, inside)
	return outside(errors.Join(err, root.Close()))
}

// outside turns the error of os.Root for a path that leads out of it into ErrOutside. It has no name there.
func outside(err error) error {
	if err != nil && strings.Contains(err.Error(), "path escapes from parent") {
		return fmt.Errorf("%w: a symbolic link leads out of it", ErrOutside)
	}
	return err
}

// Stat describes the regular file that a path names.
func (d Dirs) Stat(path string) (info fs.FileInfo, err error) {
	if d.isAnywhere() {
		if _, err = d.Check(path); err == nil {
			info, err = os.Stat(path)
		}
	} else {
		err = d.in(path, func(root *os.Root, inside string) error {
			info, err = root.Stat(inside)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, ErrKind
	}
	return info, nil
}

// ReadFile reads a regular file of at most limit bytes.
func (d Dirs) ReadFile(path string, limit int64) ([]byte, error) {
	// A named pipe would be waited for.
	if _, err := d.Stat(path); err != nil {
		return nil, err
	}
	if d.isAnywhere() {
		return readAll(limit, func() (*os.File, error) { return os.Open(path) })
	}
	var content []byte
	err := d.in(path, func(root *os.Root, inside string) (err error) {
		content, err = readAll(limit, func() (*os.File, error) { return root.Open(inside) })
		return err
	})
	return content, err
}

// SecretLimit is the size of the largest file that ReadSecret reads, in bytes: the size that a Secret can have.
const SecretLimit = 1 << 20

// ReadSecret reads a regular file of at most SecretLimit. Its errors are for the user who named the file: an ErrOutside,
// an ErrForm, or a few words that reveal nothing of its content.
func (d Dirs) ReadSecret(path string) ([]byte, error) {
	content, err := d.ReadFile(path, SecretLimit)
	switch {
	case err == nil, errors.Is(err, ErrOutside), errors.Is(err, ErrForm):
		return content, err
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("it does not exist")
	case errors.Is(err, fs.ErrPermission):
		return nil, errors.New("permission denied")
	}
	return nil, errors.New("it is not a regular file of at most 1 MiB")
}

func readAll(limit int64, open func() (*os.File, error)) ([]byte, error) {
	file, err := open()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(content)) > limit {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrSize, limit)
	}
	return content, nil
}

// WriteFile writes a file that only this user may read, and makes its directory if it is missing.
func (d Dirs) WriteFile(path string, content []byte) error {
	if d.isAnywhere() {
		if _, err := d.Check(path); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		return os.WriteFile(path, content, 0o600)
	}
	return d.in(path, func(root *os.Root, inside string) error {
		if err := root.MkdirAll(filepath.Dir(inside), 0o700); err != nil {
			return err
		}
		return root.WriteFile(inside, content, 0o600)
	})
}
