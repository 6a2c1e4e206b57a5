package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func init() {
	if len(os.Args) == 0 || os.Args[0] != Name {
		return
	}
	// What follows is done to one thread. It is enough: that one executes the program, which ends the others.
	runtime.LockOSThread()
	err := run(os.Args[1:])
	fmt.Fprintf(os.Stderr, "%s: %v\n", Name, err)
	// Not os.Exit, whose hooks belong to packages that were not initialised.
	syscall.Exit(1)
}

// run becomes the program that the arguments of Command name, and returns only if that fails.
func run(args []string) error {
	if len(args) < 2 {
		return errors.New("it is started by keelson, not by hand")
	}
	var spec Spec
	if err := json.Unmarshal([]byte(args[0]), &spec); err != nil {
		return fmt.Errorf("read the arguments: %w", err)
	}
	program := args[1]
	unix.Umask(0o077)
	// What the parent has left open by mistake is not for the program.
	if err := unix.CloseRange(3, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC); err != nil && !errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("close inherited files: %w", err)
	}
	files, err := spec.open()
	if err != nil {
		return err
	}
	rules, err := newRuleset(&spec, program, files)
	if err != nil {
		return err
	}
	if spec.WorkDir != "" {
		if err := os.Chdir(spec.WorkDir); err != nil {
			return err
		}
	}
	if err := dropRights(spec.User); err != nil {
		return err
	}
	if err := rules.enforce(); err != nil {
		return err
	}
	if !spec.Network {
		if err := denySockets(spec.NoConnect); err != nil {
			return err
		}
	}
	argv := args[1:]
	if spec.Argv0 != "" {
		argv = append([]string{spec.Argv0}, args[2:]...)
	}
	return execute(program, argv, spec.Limits)
}

// execute sets the resource limits and executes a program; it returns only if that fails. The limit of memory is usually
// below what the Go runtime has already mapped, so nothing may be allocated once it is set: not by this function, and not
// by a runtime that regards the thread as blocked. That is why all memory comes first and the system calls are raw ones.
// The soft limit of open files stays where package os has raised it to.
func execute(program string, argv []string, limits []Limit) error {
	path, err := syscall.BytePtrFromString(program)
	if err != nil {
		return err
	}
	argvp, err := syscall.SlicePtrFromStrings(argv)
	if err != nil {
		return err
	}
	envp, err := syscall.SlicePtrFromStrings(os.Environ())
	if err != nil {
		return err
	}
	values := make([]unix.Rlimit, len(limits))
	for i, limit := range limits {
		values[i] = unix.Rlimit{Cur: limit.Value, Max: limit.Value}
	}
	for i := range values {
		_, _, errno := unix.RawSyscall6(unix.SYS_PRLIMIT64, 0, uintptr(limits[i].Resource), uintptr(unsafe.Pointer(&values[i])), 0, 0, 0)
		if errno != 0 {
			return fmt.Errorf("set the resource limit %d to %d: %w", limits[i].Resource, limits[i].Value, errno)
		}
	}
	_, _, errno := unix.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(path)), uintptr(unsafe.Pointer(&argvp[0])), uintptr(unsafe.Pointer(&envp[0])))
	return fmt.Errorf("execute %s: %w", program, errno)
}

// open opens the files and sockets of the program under the numbers that Open and Listen gave them, and returns the files.
func (s *Spec) open() ([]int, error) {
	var files []int
	next := FirstFD
	give := func(fd int) error {
		err := unix.Dup3(fd, next, 0)
		next++
		return errors.Join(err, unix.Close(fd))
	}
	for _, fd := range s.Inherited {
		if err := give(fd); err != nil {
			return nil, fmt.Errorf("inherit the descriptor %d: %w", fd, err)
		}
	}
	for _, file := range s.Files {
		flags := map[Access]int{ReadOnly: unix.O_RDONLY, ReadWrite: unix.O_RDWR, Memory: unix.O_RDWR, AppendOnly: unix.O_WRONLY | unix.O_APPEND | unix.O_CREAT}
		how, known := flags[file.Access]
		if !known {
			return nil, fmt.Errorf("open %s: there is no access %q", file.Path, file.Access)
		}
		fd, err := unix.Open(file.Path, how|unix.O_CLOEXEC|unix.O_NOCTTY, 0o600)
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: file.Path, Err: err}
		}
		files = append(files, next)
		if err := give(fd); err != nil {
			return nil, err
		}
	}
	for _, path := range s.Sockets {
		fd, err := listen(path)
		if err != nil {
			return nil, fmt.Errorf("listen at %s: %w", path, err)
		}
		if err := give(fd); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// listen makes a socket that replaces what is at a path. The socket itself has another name, which is gone: a program
// that cleans up behind itself, as QEMU does, finds nothing to remove.
func listen(path string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	temporary := path + ".new"
	if err := unix.Unlink(temporary); err != nil && !errors.Is(err, unix.ENOENT) {
		return 0, err
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: temporary}); err != nil {
		return 0, err
	}
	if err := unix.Listen(fd, 16); err != nil {
		return 0, err
	}
	return fd, unix.Rename(temporary, path)
}

// dropRights changes to a user, if there is one, and gives up what the process could do beyond the rights of its user.
func dropRights(user *User) error {
	// A process that may not change this set has no capabilities that it could bound.
	for capability := uintptr(0); ; capability++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil {
			if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) {
				break // there are no more
			}
			return fmt.Errorf("drop capability %d: %w", capability, err)
		}
	}
	if user != nil {
		if err := become(user); err != nil {
			return fmt.Errorf("become user %d: %w", user.UID, err)
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("drop all capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return nil
}

// become changes the user of this thread; the functions of package syscall change that of all threads.
func become(user *User) error {
	groups := make([]uint32, len(user.Groups)+1) // one more, so that there is a first
	for i, group := range user.Groups {
		groups[i] = uint32(group) //nolint:gosec // a group of the host
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(user.Groups)), uintptr(unsafe.Pointer(&groups[0])), 0); errno != 0 {
		return errno
	}
	uid, gid := uintptr(user.UID), uintptr(user.GID)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid); errno != 0 {
		return errno
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 {
		return errno
	}
	return nil
}
