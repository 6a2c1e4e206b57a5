// Package sandbox starts programs that must not be trusted, such as QEMU with the machine of a tenant, with as few rights
// as they need.
//
// A role of this program runs first: it opens the files and sockets that the program gets, takes the rights away from
// itself, and executes the program. The process stays the same, so the caller finds it by its pid. The program opens
// nothing by name but what its Spec allows.
//
// Importing this package is enough for a program to have the role: it is done before packages of Kubernetes are
// initialised, because it depends on the standard library, golang.org/x/sys and package self only. Nothing else may be imported here.
package sandbox

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/keelson-dev/keelson/internal/self"
)

// Name is argv[0] of the role.
const Name = "keelson-sandbox"

// FirstFD is the number of the first descriptor that Open and Listen hand out. Lower ones may be those of the Go runtime.
const FirstFD = 100

// Access says what a file is opened for.
type Access string

// The values of Access.
const (
	ReadOnly   Access = "r"
	ReadWrite  Access = "rw"
	AppendOnly Access = "a" // created with mode 0600 if it is missing
	Memory     Access = "m" // a file of memfd_create(2), for reading and writing; Landlock does not apply to it
)

// User is a user of the host.
type User struct {
	UID    int   `json:"uid"`
	GID    int   `json:"gid"`
	Groups []int `json:"groups,omitempty"` // supplementary ones
}

// File is a file that is opened for the program, with the rights of the caller.
type File struct {
	Path   string `json:"path"`
	Access Access `json:"access"`
}

// Limit is a resource limit of setrlimit(2), soft and hard.
type Limit struct {
	Resource int    `json:"resource"` // such as unix.RLIMIT_AS
	Value    uint64 `json:"value"`    // in the unit of the resource
}

// Spec says what a program may use. Paths may be relative to the working directory.
type Spec struct {
	// User is the user that the program runs as; nil is that of the caller, without capabilities. It takes root.
	User *User `json:"user,omitempty"`
	// Inherited are descriptors of the caller that the program gets; see Inherit.
	Inherited []int `json:"inherited,omitempty"`
	// Files are opened for the program; see Open.
	Files []File `json:"files,omitempty"`
	// Sockets are the paths of Unix sockets that listen for the program; see Listen.
	Sockets []string `json:"sockets,omitempty"`
	// Read are further files and directories that it may read and execute from, Devices those that it may use.
	Read    []string `json:"read,omitempty"`
	Devices []string `json:"devices,omitempty"`
	// Own are directories in which it may make, change and remove files and sockets.
	Own []string `json:"own,omitempty"`
	// Network says that it may use the network and Unix sockets, and that it restricts itself further with DenyPrograms. Of the
	// Unix sockets, it reaches those below Connect and the others that its user may use; Landlock 9 denies the latter.
	Network bool     `json:"network,omitempty"`
	Connect []string `json:"connect,omitempty"`
	// Argv0 is argv[0] of the program. Empty means its path.
	Argv0 string `json:"argv0,omitempty"`
	// WorkDir is the working directory of the program. Empty means that of the caller.
	WorkDir string `json:"workDir,omitempty"`
	// Limits are set before the program is executed.
	Limits []Limit `json:"limits,omitempty"`
	// NoConnect says that it may not make sockets, so that it connects to nobody. Without Network, it may bind no TCP sockets.
	NoConnect bool `json:"noConnect,omitempty"`
}

// System are the directories with the programs, libraries and firmware of the host, which every program may read.
var System = []string{"/usr", "/lib", "/lib64", "/bin", "/nix/store", "/gnu/store", "/etc/ld.so.cache", "/dev/urandom"}

// Inherit adds a descriptor of the caller, of 3 or more, and returns the number that it has in the program. Descriptors have to be added
// before files.
func (s *Spec) Inherit(fd int) int {
	if len(s.Files)+len(s.Sockets) > 0 {
		panic("sandbox: inherited descriptors are numbered before files")
	}
	s.Inherited = append(s.Inherited, fd)
	return FirstFD + len(s.Inherited) - 1
}

// Open adds a file and returns the number that its descriptor has in the program, which may also open it again, as
// FDPath of that number, if its user may.
func (s *Spec) Open(path string, access Access) int {
	if len(s.Sockets) > 0 {
		panic("sandbox: files are numbered before sockets")
	}
	s.Files = append(s.Files, File{Path: path, Access: access})
	return FirstFD + len(s.Inherited) + len(s.Files) - 1
}

// Listen adds a socket and returns the number that it has in the program, which need only accept connections. Only the
// caller's user may connect. Files have to be added before.
func (s *Spec) Listen(path string) int {
	s.Sockets = append(s.Sockets, path)
	return FirstFD + len(s.Inherited) + len(s.Files) + len(s.Sockets) - 1
}

// FDPath is a path by which a program opens the file behind one of its descriptors.
func FDPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// Named returns what the program has said with the paths of its files in place of FDPath, under which it knows them.
func (s *Spec) Named(said string) string {
	for i, file := range s.Files {
		said = strings.ReplaceAll(said, FDPath(FirstFD+len(s.Inherited)+i), file.Path)
	}
	return said
}

// Command returns what to execute in place of a program, which is an absolute path: this program, in its role. argv
// includes argv[0].
func (s *Spec) Command(program string, args ...string) (path string, argv []string) {
	spec, err := json.Marshal(s)
	if err != nil {
		panic(err) // there is nothing in it that cannot be written
	}
	return self.Path, append([]string{Name, string(spec), program}, args...)
}
