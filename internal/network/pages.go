package network

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dropProgram gives back the pages of the program itself that were read at the start. The kernel maps more of the file around
// each page that is used, in all 24 MB. They are read again from the cache of the file when they are used. Pages that this
// process has written stay.
func dropProgram() error {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	for _, one := range programMappings(maps, program) {
		_, _, errno := unix.Syscall(unix.SYS_MADVISE, one.start, one.end-one.start, unix.MADV_DONTNEED)
		if errno != 0 {
			return fmt.Errorf("give back pages of %s: %w", program, errno)
		}
	}
	return nil
}

// mapping is a part of the address space.
type mapping struct{ start, end uintptr }

// programMappings returns the mappings of a file that cannot be written to, from the content of /proc/PID/maps.
func programMappings(maps []byte, file string) []mapping {
	var all []mapping
	lines := bufio.NewScanner(bytes.NewReader(maps))
	for lines.Scan() {
		// address permissions offset device inode path, see proc_pid_maps(5)
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || !strings.HasSuffix(lines.Text(), " "+file) || strings.Contains(fields[1], "w") {
			continue
		}
		first, last, _ := strings.Cut(fields[0], "-")
		start, startErr := strconv.ParseUint(first, 16, 8*int(unsafe.Sizeof(uintptr(0))))
		end, endErr := strconv.ParseUint(last, 16, 8*int(unsafe.Sizeof(uintptr(0))))
		if startErr == nil && endErr == nil && start < end {
			all = append(all, mapping{uintptr(start), uintptr(end)})
		}
	}
	return all
}
