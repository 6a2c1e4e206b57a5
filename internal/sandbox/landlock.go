package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Landlock comes without a library: github.com/landlock-lsm/go-landlock is well kept, but depends on libcap's psx, whose
// path has Go initialise it behind the packages of Kubernetes, which would cost every machine more than all that is done
// here. What it is for, all threads of a process, is not needed by one that executes another program.
// https://docs.kernel.org/userspace-api/landlock.html

const (
	readAccess  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	writeAccess = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	ownAccess   = writeAccess | unix.LANDLOCK_ACCESS_FS_READ_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX
	// fileAccess is what a rule for a file, and not a directory, may allow.
	fileAccess = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

// Landlock returns the version of Landlock that the kernel has, 0 if it has none.
func Landlock() int {
	version, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(version)
}

// handled returns everything that a version of Landlock can deny. What is not known here yet is not denied.
func handled(version int, spec *Spec) unix.LandlockRulesetAttr {
	attr := unix.LandlockRulesetAttr{Handled_access_fs: unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1}
	if version >= 2 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if version >= 3 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if version >= 4 && !spec.Network {
		attr.Handled_access_net |= unix.LANDLOCK_ACCESS_NET_BIND_TCP
		if spec.NoConnect {
			attr.Handled_access_net |= unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
		}
	}
	if version >= 5 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if version >= 6 {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	if version >= 9 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX
	}
	return attr
}

// ruleset is a ruleset of Landlock; its zero value is that of a kernel without.
type ruleset struct {
	attr unix.LandlockRulesetAttr
	fd   int
}

// newRuleset allows what a Spec says, and to execute a program. files are those that were opened for it.
func newRuleset(spec *Spec, program string, files []int) (ruleset, error) {
	version := Landlock()
	if version == 0 {
		return ruleset{}, nil
	}
	r := ruleset{attr: handled(version, spec)}
	fd, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&r.attr)), unsafe.Sizeof(r.attr), 0)
	if errno != 0 {
		return r, fmt.Errorf("make a ruleset of Landlock %d: %w", version, errno)
	}
	r.fd = int(fd)
	readable := slices.Concat([]string{program}, System, spec.Read)
	for access, paths := range map[uint64][]string{readAccess: readable, ownAccess: spec.Own, unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX: spec.Connect} {
		for _, path := range paths {
			if err := r.allow(path, access); err != nil {
				return r, err
			}
		}
	}
	for _, path := range append([]string{os.DevNull}, spec.Devices...) {
		if err := r.allow(path, writeAccess|unix.LANDLOCK_ACCESS_FS_IOCTL_DEV); err != nil {
			return r, err
		}
	}
	for i, file := range files {
		access := uint64(unix.LANDLOCK_ACCESS_FS_READ_FILE)
		switch spec.Files[i].Access {
		case ReadWrite:
			access = writeAccess
		case AppendOnly:
			continue // it need not be opened again
		case Memory:
			continue // nothing denies that it is opened again
		}
		if err := r.allowFD(file, access); err != nil {
			return r, fmt.Errorf("allow %s: %w", spec.Files[i].Path, err)
		}
	}
	return r, nil
}

// allow allows access to a file, or to everything in a directory. What does not exist is left out.
func (r *ruleset) allow(path string, access uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = r.allowFD(fd, access)
		_ = unix.Close(fd) // nothing was written
	}
	if err != nil {
		return fmt.Errorf("allow %s: %w", path, err)
	}
	return nil
}

func (r *ruleset) allowFD(fd int, access uint64) error {
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		return err
	}
	if info.Mode&unix.S_IFMT != unix.S_IFDIR {
		access &= fileAccess
	}
	if access &= r.attr.Handled_access_fs; access == 0 {
		return nil // this version of Landlock does not deny it
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)} //nolint:gosec // a descriptor
	return r.add(unix.LANDLOCK_RULE_PATH_BENEATH, unsafe.Pointer(&attr))
}

func (r *ruleset) add(kind int, attr unsafe.Pointer) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(r.fd), uintptr(kind), uintptr(attr), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// enforce permanently denies this thread everything that the ruleset does not allow.
func (r *ruleset) enforce() error {
	if r.fd == 0 {
		return nil
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(r.fd), 0, 0); errno != 0 {
		return fmt.Errorf("enforce Landlock: %w", errno)
	}
	return nil
}
