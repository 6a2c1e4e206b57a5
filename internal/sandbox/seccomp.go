package sandbox

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data, for a little-endian machine; see seccomp(2).
const (
	dataNumber   = 0
	dataArch     = 4
	dataFamily   = 16 // the first argument of socket(2)
	dataProtocol = 32 // the third
)

// x32 is the bit of the numbers of system calls of that ABI, which x86-64 has beside its own.
const x32 = 0x40000000

// Instructions of filters.
const (
	load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	least = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	end   = unix.BPF_RET | unix.BPF_K
)

// architectures are the values of dataArch for the machines with filters.
var architectures = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// answer is the result of a filter that makes a system call fail.
func answer(errno unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(errno) }

// denySockets denies what older versions of Landlock let pass. A program that made a Unix socket could connect to the
// monitors of other machines; its own sockets are opened for it. The rules for TCP do not hold for MPTCP. io_uring makes
// sockets past this filter, and programs do without it. all denies every socket, because Landlock has no rules for UDP;
// those that were opened for the program accept connections without one.
func denySockets(all bool) error {
	arch, known := architectures[runtime.GOARCH]
	if !known {
		return nil
	}
	var denied uint8
	if all {
		denied = 7 // to EACCES
	}
	filter := []unix.SockFilter{
		{Code: load, K: dataArch},
		{Code: equal, K: arch, Jf: 9}, // to EPERM
		{Code: load, K: dataNumber},
		{Code: least, K: x32, Jt: 7}, // to EPERM
		{Code: equal, K: unix.SYS_IO_URING_SETUP, Jt: 7},
		{Code: equal, K: unix.SYS_SOCKET, Jt: denied, Jf: 4}, // to the permission
		{Code: load, K: dataFamily},
		{Code: equal, K: unix.AF_UNIX, Jt: 5},
		{Code: load, K: dataProtocol},
		{Code: equal, K: unix.IPPROTO_MPTCP, Jt: 4},
		{Code: end, K: unix.SECCOMP_RET_ALLOW},
		{Code: end, K: answer(unix.EPERM)},
		{Code: end, K: answer(unix.ENOSYS)},
		{Code: end, K: answer(unix.EACCES)},
		{Code: end, K: answer(unix.EPROTONOSUPPORT)},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]} //nolint:gosec // a few
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
		return fmt.Errorf("filter system calls: %w", err)
	}
	return nil
}

// DenyPrograms permanently denies this process, with all its threads, to execute programs, to use io_uring, and to make
// sockets other than those of IP, Unix sockets and those by which the kernel tells the addresses of the host.
func DenyPrograms() error {
	arch, known := architectures[runtime.GOARCH]
	if !known {
		return nil
	}
	filter := []unix.SockFilter{
		{Code: load, K: dataArch},
		{Code: equal, K: arch, Jf: 14}, // to EPERM
		{Code: load, K: dataNumber},
		{Code: least, K: x32, Jt: 12}, // to EPERM
		{Code: equal, K: unix.SYS_EXECVE, Jt: 11},
		{Code: equal, K: unix.SYS_EXECVEAT, Jt: 10},
		{Code: equal, K: unix.SYS_PTRACE, Jt: 9},
		{Code: equal, K: unix.SYS_IO_URING_SETUP, Jt: 9}, // to ENOSYS
		{Code: equal, K: unix.SYS_SOCKET, Jf: 6},         // to the permission
		{Code: load, K: dataFamily},
		{Code: equal, K: unix.AF_UNIX, Jt: 4},
		{Code: equal, K: unix.AF_INET, Jt: 3},
		{Code: equal, K: unix.AF_INET6, Jt: 2},
		{Code: equal, K: unix.AF_NETLINK, Jt: 1},
		{Code: end, K: answer(unix.EACCES)},
		{Code: end, K: unix.SECCOMP_RET_ALLOW},
		{Code: end, K: answer(unix.EPERM)},
		{Code: end, K: answer(unix.ENOSYS)},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]} //nolint:gosec // a few
	// The threads are bound together: whoever is not allowed to gain privileges may filter, and passes both on to the others.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return fmt.Errorf("filter system calls: %w", errno)
	}
	if thread != 0 {
		return fmt.Errorf("filter system calls: the thread %d cannot be filtered", thread)
	}
	return nil
}
